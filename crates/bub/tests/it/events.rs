//! A whole turn as its handlers see it: every event, in its order, with its fields.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bub_kernel::{
    event::{
        AnyEvent, ChatFinished, CommandFinished, EVENTS, LlmCallFinished, LlmCallStarted, MessagesPending, RunFinished,
        RunStarted, StepFinished, StepStarted, ToolCallFinished, ToolCallStarted,
    },
    hooks::{Hooks, ToolCall, ToolStep},
    message::{Message, Part, TokenUsage, ToolCallRequest},
    model::ModelEvent,
    tape::Tape,
    tool::{Caller, ToolReply, prelude::*},
    turn::{Prompt, RunId, SessionId, TurnState},
};
use bub_testing::Script;
use expect_test::expect;
use serde_json::{Value, json};

use crate::bench::{Bench, Folders};

/// Says its text again.
#[derive(Deserialize, JsonSchema)]
struct EchoArgs {
    text: String,
}

/// Text said again.
#[derive(Serialize, JsonSchema)]
struct Echoed {
    said: String,
}

struct Echo;

impl Tool for Echo {
    const NAME: &'static str = "say.echo";
    const EXPOSURE: Exposure = Exposure::Direct;
    type Args = EchoArgs;
    type Output = Echoed;

    async fn call(&self, _: &ToolContext, args: EchoArgs) -> Result<Echoed, ToolError> {
        if args.text == "no" { Err(ToolError::not_found("nothing to say")) } else { Ok(Echoed { said: args.text }) }
    }

    fn render(&self, output: &Echoed) -> Option<String> {
        Some(format!("said: {}", output.said))
    }
}

/// The same, for the model's code.
struct Shout;

impl Tool for Shout {
    const NAME: &'static str = "say.shout";
    type Args = EchoArgs;
    type Output = Echoed;

    async fn call(&self, _: &ToolContext, args: EchoArgs) -> Result<Echoed, ToolError> {
        Ok(Echoed { said: args.text.to_uppercase() })
    }

    fn render(&self, output: &Echoed) -> Option<String> {
        Some(format!("shouted: {}", output.said))
    }
}

/// Denies what says "secret", and notes what it sees of results.
struct Policy(Log);

type Log = Arc<Mutex<Vec<String>>>;

#[async_trait]
impl Hooks for Policy {
    fn name(&self) -> &str {
        "policy"
    }

    fn implements(&self) -> &[&'static str] {
        &["before_tool", "after_tool"]
    }

    async fn before_tool(&self, _: &ToolContext, call: &mut ToolCall) -> ToolStep {
        if call.args["text"] == "secret" {
            ToolStep::Deny(Some("say nothing of that".into()))
        } else {
            ToolStep::Proceed
        }
    }

    async fn after_tool(&self, _: &ToolContext, call: &ToolCall, result: &mut Result<ToolReply, ToolError>) {
        self.0.lock().unwrap().push(format!("after_tool {}: {}", call.tool, result_text(result)));
    }
}

/// Runs that were seen, by the order of their first sight.
#[derive(Default)]
struct Runs(Vec<String>);

impl Runs {
    fn name(&mut self, run: &RunId) -> String {
        if !run.0.starts_with("run-") {
            return run.0.clone();
        }
        let place = self.0.iter().position(|it| *it == run.0).unwrap_or_else(|| {
            self.0.push(run.0.clone());
            self.0.len() - 1
        });
        format!("run-{place}")
    }
}

fn result_text(result: &Result<ToolReply, ToolError>) -> String {
    match result {
        Ok(reply) => reply.value.to_string(),
        Err(err) => format!("error {}", err.to_value()),
    }
}

fn without_header(text: &str) -> &str {
    text.rsplit("---\n").next().unwrap_or_default()
}

fn prompt_text(prompt: &Prompt) -> String {
    without_header(prompt.as_text().unwrap_or("<parts>")).to_owned()
}

fn message_text(message: &Message) -> String {
    let calls: String = message.tool_calls.iter().map(|it| format!(" +{}", it.id)).collect();
    format!("{}: {}{calls}", message.role.as_str(), without_header(&message.joined_text()))
}

fn messages_text(messages: &[Message]) -> String {
    messages.iter().map(message_text).collect::<Vec<_>>().join(" | ")
}

fn calls_text(calls: &[ToolCallRequest]) -> String {
    calls.iter().map(|it| format!("{} {}({})", it.id, it.name, it.arguments)).collect::<Vec<_>>().join(" | ")
}

fn usage_text(usage: Option<&TokenUsage>) -> String {
    usage.map_or("-".into(), |it| format!("{}+{}", it.input_tokens, it.output_tokens))
}

fn state_text(state: &TurnState, tape: &Tape) -> String {
    assert!(tape.name().as_str().contains("__"));
    let session = state.session.as_ref().map_or("-", |it| it.0.as_str());
    format!("[{session} {}]", state.model.as_deref().unwrap_or("-"))
}

fn started(ctx: &ToolContext, call: &ToolCall, runs: &mut Runs) -> String {
    let caller = match call.caller {
        Caller::Model => "model",
        Caller::Code => "code",
        Caller::Command => "person",
    };
    assert_eq!(ctx.caller, call.caller);
    format!(
        "{} {} {:?} {}({}) by {caller}",
        state_text(&ctx.state, &ctx.tape),
        runs.name(&ctx.run),
        call.id,
        call.tool,
        call.args
    )
}

/// An event with all its fields but durations, in a line. The patterns are whole, so that a new field has
/// to be looked at here.
fn line(event: &mut dyn AnyEvent, runs: &mut Runs) -> String {
    let event_name = event.info().name;
    let any = event.as_any();
    macro_rules! fields {
        ($($type:ident { $($field:ident),* } => $text:expr;)*) => {
            $(if let Some($type { $($field),* }) = any.downcast_ref::<$type>() {
                return format!("{event_name} {}", $text);
            })*
        };
    }
    fields! {
        RunStarted { state, tape, model, prompt, metadata } =>
            format!("{} model={model} prompt={:?} metadata={metadata:?}", state_text(state, tape), prompt_text(prompt));
        RunFinished { state, tape, status, steps, elapsed_ms, error } => {
            assert!(*elapsed_ms < 60_000);
            format!("{} status={status} steps={steps} error={error:?}", state_text(state, tape))
        };
        StepStarted { state, tape, step, prompt } =>
            format!("{} step={step} prompt={:?}", state_text(state, tape), prompt.as_ref().map(prompt_text));
        StepFinished { state, tape, step, status, elapsed_ms, error } => {
            assert!(*elapsed_ms < 60_000);
            format!("{} step={step} status={status} error={error:?}", state_text(state, tape))
        };
        MessagesPending { state, tape, messages } =>
            format!("{} messages={}", state_text(state, tape), messages_text(messages));
        LlmCallStarted { state, tape, request, decision } => {
            let tools: Vec<_> = request.tools.iter().map(|it| it.alias()).filter(|it| it.starts_with("say") || it == "run_code").collect();
            format!(
                "{} {} model={} max_tokens={:?} tools={} messages={} decision={decision:?}",
                state_text(state, tape), runs.name(&request.run), request.model, request.options.max_tokens,
                tools.join(","), messages_text(&request.messages),
            )
        };
        LlmCallFinished { state, tape, request, text, tool_calls, usage, error, duration_ms } => {
            assert!(*duration_ms < 60_000);
            format!(
                "{} {} model={} text={text:?} tool_calls={} usage={} error={error:?}",
                state_text(state, tape), runs.name(&request.run), request.model, calls_text(tool_calls), usage_text(usage.as_ref()),
            )
        };
        ToolCallStarted { state, ctx, call, decision } => {
            assert!(Arc::ptr_eq(state, &ctx.state));
            format!("{} decision={decision:?}", started(ctx, call, runs))
        };
        ToolCallFinished { state, ctx, call, result, duration_ms } => {
            assert!(Arc::ptr_eq(state, &ctx.state) && *duration_ms < 60_000);
            format!("{} result={}", started(ctx, call, runs), result_text(result))
        };
        ChatFinished {
            state, tape, run, model, system_prompt, new_messages, response_text, tool_calls, tool_results, usage,
            provider, assistant_parts, error, context_error
        } => {
            assert!(system_prompt.as_ref().is_some_and(|it| it.contains("<code_mode>")));
            let parts: Vec<_> = assistant_parts.iter().map(|it| matches!(it, Part::Reasoning(_))).collect();
            format!(
                "{} {} model={model} provider={provider} new={} response={response_text:?} calls={} results={} usage={} \
                 reasoning={parts:?} error={error:?} context_error={context_error:?}",
                state_text(state, tape), runs.name(run), messages_text(new_messages), calls_text(tool_calls).len(),
                Value::Array(tool_results.clone()), usage_text(usage.as_ref()),
            )
        };
        CommandFinished { state, tape, line, name, status, elapsed_ms, output } => {
            assert!(*elapsed_ms < 60_000);
            format!("{} line={line:?} name={name} status={status} output={output:?}", state_text(state, tape))
        };
    }
    panic!("{event_name} is not described here")
}

const CODE: &str = "result = await tools.say_shout(text='hey')\nprint(result['said'])";

fn bench() -> (Bench, Log) {
    let log = Log::default();
    let usage = TokenUsage { input_tokens: 100, output_tokens: 7, ..TokenUsage::default() };
    let scripts = [
        Script::calls([
            ("c1", "say_echo", json!({"text": "hi"})),
            ("c2", "say_echo", json!({"text": "no"})),
            ("c3", "say_echo", json!({"text": "secret"})),
            ("c4", "say_nothing", json!({})),
            ("c5", "run_code", json!({"code": CODE})),
        ])
        .after([ModelEvent::Reasoning("hm".into())])
        .usage(usage),
        Script::text("done"),
    ];
    let seen = log.clone();
    let bench = Folders::new().bench_with(scripts, move |registry| {
        registry.tool(Echo).tool(Shout).hooks(Policy(seen.clone()));
        let (seen, runs) = (seen.clone(), Mutex::new(Runs::default()));
        registry.events.on_any(move |event| {
            let text = line(event, &mut runs.lock().unwrap());
            seen.lock().unwrap().push(text);
            Box::pin(std::future::ready(Ok(())))
        });
    });
    (bench, log)
}

#[tokio::test]
async fn a_whole_turn_sends_its_events_in_order_with_their_fields() {
    let (bench, log) = bench();
    bench.say(",code_mode enable=true").await;
    bench.app.runtime().steer_as_given(&SessionId("s".into()), &Prompt::Text("also this".into())).unwrap();
    assert_eq!(bench.say("go").await, "done");
    expect![[r#"
        ToolCallStarted [s -] run_command "" code_mode({"enable":"true"}) by person decision=Proceed
        after_tool code_mode: "Session code mode enabled (applies from the next turn)."
        ToolCallFinished [s -] run_command "" code_mode({"enable":"true"}) by person result="Session code mode enabled (applies from the next turn)."
        CommandFinished [s -] line="code_mode enable=true" name=code_mode status=ok output="Session code mode enabled (applies from the next turn)."
        RunStarted [s fake:m] model=fake:m prompt="go" metadata={}
        StepStarted [s fake:m] step=1 prompt=Some("go")
        MessagesPending [s fake:m] messages=user: also this
        LlmCallStarted [s fake:m] run-0 model=fake:m max_tokens=Some(16384) tools=run_code,say_echo messages=user: also this | user: go decision=None
        LlmCallFinished [s fake:m] run-0 model=fake:m text="" tool_calls=c1 say_echo({"text":"hi"}) | c2 say_echo({"text":"no"}) | c3 say_echo({"text":"secret"}) | c4 say_nothing({}) | c5 run_code({"code":"result = await tools.say_shout(text='hey')\nprint(result['said'])"}) usage=100+7 error=None
        ToolCallStarted [s fake:m] run-0 "c1" say.echo({"text":"hi"}) by model decision=Proceed
        after_tool say.echo: "said: hi"
        ToolCallFinished [s fake:m] run-0 "c1" say.echo({"text":"hi"}) by model result="said: hi"
        ToolCallStarted [s fake:m] run-0 "c2" say.echo({"text":"no"}) by model decision=Proceed
        after_tool say.echo: error {"kind":"not_found","message":"nothing to say"}
        ToolCallFinished [s fake:m] run-0 "c2" say.echo({"text":"no"}) by model result=error {"kind":"not_found","message":"nothing to say"}
        after_tool say.echo: error {"kind":"tool","message":"say nothing of that"}
        ToolCallFinished [s fake:m] run-0 "c3" say.echo({"text":"secret"}) by model result=error {"kind":"tool","message":"say nothing of that"}
        ToolCallStarted [s fake:m] run-0 "c4" say_nothing({}) by model decision=Proceed
        after_tool say_nothing: "Tool `say_nothing` does not exist. No similar tool is available."
        ToolCallFinished [s fake:m] run-0 "c4" say_nothing({}) by model result="Tool `say_nothing` does not exist. No similar tool is available."
        ToolCallStarted [s fake:m] run-0 "c5" run_code({"code":"result = await tools.say_shout(text='hey')\nprint(result['said'])"}) by model decision=Proceed
        ToolCallStarted [s fake:m] run-0 "c5/1" say.shout({"text":"hey"}) by code decision=Proceed
        after_tool say.shout: {"said":"HEY"}
        ToolCallFinished [s fake:m] run-0 "c5/1" say.shout({"text":"hey"}) by code result={"said":"HEY"}
        after_tool run_code: "HEY\n"
        ToolCallFinished [s fake:m] run-0 "c5" run_code({"code":"result = await tools.say_shout(text='hey')\nprint(result['said'])"}) by model result="HEY\n"
        ChatFinished [s fake:m] run-0 model=fake:m provider=fake new=user: also this | user: go response=Some("") calls=201 results=["said: hi",{"kind":"not_found","message":"nothing to say"},{"kind":"tool","message":"say nothing of that"},"Tool `say_nothing` does not exist. No similar tool is available.","HEY\n"] usage=100+7 reasoning=[true] error=None context_error=None
        StepFinished [s fake:m] step=1 status=continue error=None
        StepStarted [s fake:m] step=2 prompt=None
        LlmCallStarted [s fake:m] run-1 model=fake:m max_tokens=Some(16384) tools=run_code,say_echo messages=user: also this | user: go | assistant:  +c1 +c2 +c3 +c4 +c5 | tool: said: hi | tool: {"kind": "not_found", "message": "nothing to say"} | tool: {"kind": "tool", "message": "say nothing of that"} | tool: Tool `say_nothing` does not exist. No similar tool is available. | tool: HEY
         decision=None
        LlmCallFinished [s fake:m] run-1 model=fake:m text="done" tool_calls= usage=- error=None
        ChatFinished [s fake:m] run-1 model=fake:m provider=fake new= response=Some("done") calls=0 results=[] usage=- reasoning=[] error=None context_error=None
        StepFinished [s fake:m] step=2 status=ok error=None
        RunFinished [s fake:m] status=ok steps=2 error=None
    "#]].assert_eq(&(log.lock().unwrap().join("\n") + "\n"));
    let text = log.lock().unwrap().join("\n");
    for event in EVENTS {
        assert!(text.contains(event.name), "{} was not sent", event.name);
    }
}
