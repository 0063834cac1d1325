//! What the agent offers in each step, and what an embedder decides on.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use bub::Run;
use bub_kernel::{
    hooks::{Hooks, ToolView},
    message::{Message, Role},
    steps::{PromptSection, StepError, StepFacts, StepPolicy},
    tool::prelude::*,
    turn::{Prompt, SessionId, TurnRequest, TurnState},
};
use bub_testing::{Script, ScriptedModel};
use serde_json::json;

use crate::agent::{Add, Named, agent, lines, sent};

fn offered(model: &ScriptedModel, idx: usize) -> Vec<String> {
    model.requests()[idx].tools.iter().map(|it| it.alias()).collect()
}

fn add() -> Script {
    Script::calls([("c", "math_add", json!({"a": 2, "b": 3}))])
}

#[tokio::test]
async fn every_tool_but_commands_is_offered_whatever_a_session_would_say() {
    let (builder, model) = agent([Script::text("a"), Script::text("b")]);
    let agent = builder
        .tools([
            Named::tool("auto", Exposure::Auto, false),
            Named::tool("direct", Exposure::Direct, false),
            Named::tool("for.code", Exposure::Code, false),
            Named::tool("later", Exposure::Auto, true),
            Named::tool("person", Exposure::Command, false),
        ])
        .build()
        .unwrap();
    let all = ["auto", "direct", "for_code", "later"];
    agent.ask("x").await.unwrap();
    assert_eq!(offered(&model, 0), all);
    let mut state = TurnState::default();
    state.allowed_tools = Some(vec!["auto".into()]);
    state.code_mode = true;
    // A tape may say what it likes: nothing on it is a setting of the agent.
    agent.tape("t").append_event("model_switch", json!({"model": "nope:x"})).await.unwrap();
    agent.ask(Run::new("x").tape("t").state(state)).await.unwrap();
    assert_eq!((offered(&model, 1), model.requests()[1].model.as_str()), (all.map(str::to_owned).to_vec(), "m"));
    assert_eq!(agent.ask(",person").await.unwrap(), "person");
}

#[tokio::test]
async fn sections_stand_in_order_and_know_the_step() {
    struct Say;

    #[async_trait]
    impl Hooks for Say {
        fn name(&self) -> &str {
            "say"
        }

        fn implements(&self) -> &[&'static str] {
            &["system_prompt"]
        }

        async fn system_prompt(&self, _: &TurnState) -> Option<String> {
            Some("From a hook.".into())
        }
    }

    let (builder, model) = agent([add(), Script::text("5")]);
    let agent = builder
        .name("adder")
        .tool(Add)
        .dyn_tool(Named::tool("person", Exposure::Command, false))
        .system_prompt("Be brief.")
        .system_prompt(PromptSection::of(|facts| {
            let tools: Vec<_> = facts.tools.iter().map(|it| it.name()).collect();
            let prompt = facts.prompt.and_then(Prompt::as_text).unwrap_or("nothing new");
            format!("{} on {} with {}: {prompt}", facts.agent, facts.model, tools.join(","))
        }))
        .system_prompt(PromptSection::of(|_| None))
        .system_prompt(PromptSection::made(|facts| {
            Box::pin(async move {
                let stats = facts.tape.stats().await.ok()?;
                let session = facts.state.session.as_ref()?;
                Some(format!("{} anchor on {session}", stats.anchors))
            })
        }))
        .hooks(Say)
        .build()
        .unwrap();
    agent.ask(Run::new("2 + 3").tape("t")).await.unwrap();
    let system = |idx: usize| model.requests()[idx].system.clone().unwrap();
    assert_eq!(system(0), "From a hook.\n\nBe brief.\n\nadder on fake:m with math.add: 2 + 3\n\n1 anchor on t");
    assert!(system(1).contains("with math.add: nothing new\n\n"), "{}", system(1));
}

/// A policy of closures would be no shorter: each part notes that it was asked.
#[derive(Default)]
struct Policy {
    steps: AtomicUsize,
    inbox: Mutex<Vec<&'static str>>,
}

#[async_trait]
impl StepPolicy for Policy {
    async fn prepare_tools(&self, facts: &StepFacts<'_>) -> Result<ToolView, StepError> {
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        Ok(ToolView::of(facts.tools.iter().skip(step).cloned()))
    }

    async fn pending_messages(&self, _: &StepFacts<'_>) -> Result<Vec<Message>, StepError> {
        let waiting = self.inbox.lock().unwrap().pop();
        Ok(waiting.into_iter().map(|it| Message::text(Role::User, it)).collect())
    }

    async fn has_pending_messages(&self, _: &StepFacts<'_>) -> Result<bool, StepError> {
        Ok(!self.inbox.lock().unwrap().is_empty())
    }

    async fn continue_prompt(&self, facts: &StepFacts<'_>) -> Result<Option<Prompt>, StepError> {
        Ok(facts.prompt.map(|it| Prompt::Text(format!("after {}", it.as_text().unwrap_or_default()))))
    }
}

#[tokio::test]
async fn an_embedder_decides_on_tools_messages_and_how_it_goes_on() {
    let (builder, model) = agent([add(), Script::text("b"), Script::text("c")]);
    let policy = Policy { inbox: Mutex::new(vec!["third", "second", "first"]), ..Policy::default() };
    let agent = builder.tool(Add).dyn_tool(Named::plain("other")).steps(policy).build().unwrap();
    assert_eq!(agent.ask("go").await.unwrap(), "c");
    assert_eq!(offered(&model, 0), ["math_add", "other"]);
    assert_eq!(offered(&model, 1), ["other"]);
    assert_eq!(offered(&model, 2), [""; 0]);
    assert_eq!(sent(&model, 0), ["user: first", "user: go"]);
    // The second step follows the call, the third only the message that waited.
    assert_eq!(sent(&model, 1)[2..], ["assistant: ", "tool: 5", "user: second", "user: after go"]);
    assert_eq!(sent(&model, 2)[6..], ["assistant: b", "user: third", "user: after after go"]);
}

#[tokio::test]
async fn a_decision_that_fails_ends_the_run_and_loses_no_word() {
    struct Fails(&'static str);

    impl Fails {
        fn check<T>(&self, decision: &str, value: T) -> Result<T, StepError> {
            if self.0 == decision { Err("the database is away".into()) } else { Ok(value) }
        }
    }

    #[async_trait]
    impl StepPolicy for Fails {
        async fn prepare_tools(&self, facts: &StepFacts<'_>) -> Result<ToolView, StepError> {
            self.check("prepare_tools", ToolView::of(facts.tools.iter().cloned()))
        }

        async fn pending_messages(&self, _: &StepFacts<'_>) -> Result<Vec<Message>, StepError> {
            self.check("pending_messages", Vec::new())
        }

        async fn has_pending_messages(&self, _: &StepFacts<'_>) -> Result<bool, StepError> {
            self.check("has_pending_messages", false)
        }

        async fn continue_prompt(&self, _: &StepFacts<'_>) -> Result<Option<Prompt>, StepError> {
            self.check("continue_prompt", None)
        }
    }

    for decision in ["prepare_tools", "pending_messages", "has_pending_messages", "continue_prompt"] {
        let first = if decision == "has_pending_messages" { Script::text("a") } else { add() };
        let (builder, _) = agent([first, Script::text("b")]);
        let agent = builder.tool(Add).steps(Fails(decision)).build().unwrap();
        agent.steer("t", "wait for me").unwrap();
        let err = agent.ask(Run::new("my words").tape("t")).await.unwrap_err();
        assert_eq!(err.to_string(), format!("{decision} failed: the database is away"));
        let tape = lines(&agent.tape("t")).await;
        assert!(tape.contains(r#"message {"role": "user", "content": "my words"}"#), "{decision}: {tape}");
        assert!(tape.contains("\"loop.finish\", \"data\": {\"status\": \"error\""), "{decision}: {tape}");
        let is_waiting = decision == "prepare_tools";
        assert_eq!(tape.contains("wait for me"), !is_waiting, "{decision}: {tape}");
    }
}

/// Runs a turn inside, with fewer tools.
#[derive(Deserialize, JsonSchema)]
struct InnerArgs {
    session: String,
}

struct Inner;

impl Tool for Inner {
    const NAME: &'static str = "inner";
    type Args = InnerArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: InnerArgs) -> Result<String, ToolError> {
        let session = if args.session == "own" { ctx.session.clone() } else { SessionId(args.session) };
        let request = TurnRequest {
            session,
            prompt: "inside".into(),
            model: None,
            reasoning_effort: None,
            allowed_tools: Some(vec!["math_add".into()]),
            allowed_skills: None,
        };
        let done = ctx.host.run_turn(ctx, request).await;
        done.map(|it| it.text).map_err(|err| ToolError::raised("RuntimeError", err.to_string()))
    }
}

#[tokio::test]
async fn a_turn_inside_may_use_what_its_caller_says() {
    for (session, tape) in [("temp/child", "temp/child"), ("own", "t")] {
        let inner = Script::calls([("c", "inner", json!({"session": session}))]);
        let (builder, model) = agent([inner, Script::text("within"), Script::text("done")]);
        let agent = builder.tool(Add).tool(Inner).build().unwrap();
        assert_eq!(agent.ask(Run::new("go").tape("t")).await.unwrap(), "done");
        assert_eq!((offered(&model, 0).len(), offered(&model, 1)), (2, vec!["math_add".to_owned()]));
        assert_eq!(lines(&agent.tape(tape)).await.contains("inside"), session == "own");
    }
    // Without a name the outer run leaves nothing, and neither does one inside it in the same session.
    let inner = Script::calls([("c", "inner", json!({"session": "own"}))]);
    let (builder, _) = agent([inner, Script::text("within"), Script::text("done")]);
    let store = Arc::new(bub_kernel::tape::MemoryStore::default());
    let agent = builder.tool(Inner).tool(Add).store(store).build().unwrap();
    agent.ask("go").await.unwrap();
    assert_eq!(lines(&agent.tape("temp/agent-0")).await, "");
}
