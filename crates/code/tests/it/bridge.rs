//! Models that code asks: answers, streams, embeddings, decisions, and what goes wrong.

use std::sync::Arc;

use async_trait::async_trait;
use bub_code::{CodeMode, ModelChoice, Models};
use bub_kernel::{
    message::{Role, TokenUsage},
    model::{
        DecideRequest, Decisions, EmbedRequest, Embeddings, FinishReason, ModelClient, ModelError, ModelEvent,
        ModelOptions, ModelProvider, ModelRequest, ModelStream,
    },
    plugin::{Plugin, PluginError, Registry},
};
use bub_testing::Script;
use serde_json::{Map, Value, json};

use crate::{
    bench::{Bench, Setup},
    scripted::Scripted,
};

fn calls(calls: &[(&str, Value)]) -> String {
    calls.iter().map(|(op, args)| format!("call republic.{op} {args}\n")).collect()
}

/// The printed results, a value or error text each.
async fn run(bench: &Bench, list: &[(&str, Value)]) -> Vec<Value> {
    let text = bench.command(&calls(list)).await.unwrap();
    text.lines().map(|it| serde_json::from_str(it).unwrap_or_else(|_| it.into())).collect()
}

#[tokio::test]
async fn a_chat_has_the_whole_answer() {
    let usage = TokenUsage { input_tokens: 7, output_tokens: 2, ..TokenUsage::default() };
    let bench = Bench::new([
        Script::text("hello").after([ModelEvent::Reasoning("hm".into())]).usage(usage),
        Script::events([ModelEvent::Refusal("no".into()), ModelEvent::Finish(FinishReason::Stop)]),
    ]);
    let message = json!({"$republic": "message", "role": "user", "content": ["look", {
        "$republic": "image", "media_type": "image/png", "data": "AAAA", "url": null,
    }]});
    let system = json!({"$republic": "message", "role": "system", "content": ["Be short."]});
    let results = run(
        &bench,
        &[
            ("chat", json!({"spec": null, "messages": [system, message], "options": {"max_tokens": 9, "stop": "x", "top_k": 3}})),
            ("chat", json!({"spec": "fake:other", "messages": "hi", "options": {}})),
        ],
    )
    .await;
    assert_eq!(
        results[0],
        json!({
            "text": "hello", "reasoning": "hm", "refusal": null, "finish_reason": "stop", "model": "m",
            "token_usage": {"input_tokens": 7, "output_tokens": 2, "reasoning_tokens": 0, "cached_tokens": 0, "cache_write_tokens": 0},
            "message": {"$republic": "message", "role": "assistant", "content": ["hello"]},
        })
    );
    assert_eq!((&results[1]["finish_reason"], &results[1]["refusal"]), (&json!("refusal"), &json!("no")));
    let requests = bench.model.requests();
    assert_eq!(requests[0].system.as_deref(), Some("Be short."));
    assert_eq!((requests[0].messages.len(), requests[0].messages[0].parts.len()), (1, 2));
    let options = &requests[0].options;
    assert_eq!((options.max_tokens, options.stop.as_slice()), (Some(9), ["x".to_owned()].as_slice()));
    assert_eq!(options.top_k, Some(3));
    assert!(requests[0].tools.is_empty());
    assert_eq!((requests[1].model.as_str(), requests[1].messages[0].role), ("other", Role::User));
}

#[tokio::test]
async fn streams_come_piece_by_piece_and_close() {
    let bench = Bench::new([
        Script::events([
            ModelEvent::Text("a".into()),
            ModelEvent::Text("b".into()),
            ModelEvent::Usage(TokenUsage::default()),
            ModelEvent::Finish(FinishReason::Stop),
        ]),
        Script::text("half").then_error(ModelError::Incomplete("cut".into())),
        Script::text("never read"),
    ]);
    let open = ("stream_open", json!({"spec": null, "messages": "hi", "options": {}}));
    let next = |id: u64| ("stream_next", json!({"stream": id}));
    let results = run(
        &bench,
        &[
            open.clone(),
            next(0),
            next(0),
            open.clone(),
            next(1),
            next(1),
            next(1),
            open,
            ("stream_close", json!({"stream": 2})),
            next(2),
            ("stream_close", json!({"stream": 2})),
        ],
    )
    .await;
    assert_eq!(results[0], json!({"stream": 0}));
    let kinds: Vec<_> =
        results[1]["events"].as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!((kinds, &results[1]["done"]), (vec!["text", "text", "usage", "completed"], &json!(true)));
    assert_eq!(results[1]["events"][3]["response"]["text"], "ab");
    let closed = json!("![invalid_input] The stream is closed.");
    assert_eq!(results[2], closed);
    // What came before the failure comes first.
    assert_eq!(results[4], json!({"events": [{"type": "text", "chunk": "half"}], "done": false}));
    assert_eq!(results[5], json!("![tool] stream_next failed: StreamIncompleteError: the answer was cut off: cut"));
    assert_eq!((&results[6], &results[8], &results[9], &results[10]), (&closed, &Value::Null, &closed, &Value::Null));
}

#[tokio::test]
async fn mistakes_are_told_in_the_right_words() {
    let bench = Bench::new([Script::error(ModelError::Auth("bad key".into()))]);
    let ask = |options: Value| json!({"spec": null, "messages": "hi", "options": options});
    for (op, args, expected) in [
        (
            "chat",
            ask(json!({})),
            "[tool] chat failed: AuthenticationError: the provider refused the credentials: bad key",
        ),
        ("chat", ask(json!({"tools": []})), "[invalid_input] republic models in run_code do not support tools."),
        (
            "chat",
            ask(json!({"tool_choice": "auto"})),
            "[invalid_input] republic models in run_code do not support tools.",
        ),
        (
            "chat",
            ask(json!({"max_tokens": "many"})),
            "[invalid_input] chat failed: option 'max_tokens' cannot be \"many\"",
        ),
        ("chat", ask(json!({"colour": 1})), "[invalid_input] chat failed: unknown option 'colour'"),
        ("chat", json!({"messages": 7}), "[invalid_input] chat() takes text or republic messages."),
        ("chat", json!({"messages": []}), "[invalid_input] chat() takes text or republic messages."),
        ("chat", json!({"messages": [{"role": "user"}]}), "[invalid_input] chat() takes text or republic messages."),
        ("chat", json!({}), "[invalid_input] chat failed: missing field `messages`"),
        (
            "chat",
            json!({"spec": "nonsense", "messages": "x"}),
            "[invalid_input] Expected a provider:model identifier, got 'nonsense'",
        ),
        ("chat", json!({"spec": "nobody:x", "messages": "x"}), "[invalid_input] unknown model provider 'nobody'"),
        ("nothing", json!({}), "[invalid_input] unknown republic operation: nothing"),
        ("stream_next", json!({"stream": "x"}), "[invalid_input] stream_next failed: "),
        (
            "embed",
            json!({"spec": null, "texts": ["a"]}),
            "[tool] embed failed: UnsupportedFeatureError: this provider makes no embeddings",
        ),
        ("embed", json!({"spec": null, "texts": "a"}), "[invalid_input] embed failed: "),
        (
            "decide",
            json!({"spec": null, "state": {}, "questions": {"a": "b"}}),
            "[invalid_input] decide() takes republic.decisions questions.",
        ),
        (
            "decide",
            json!({"spec": null, "state": {}, "questions": {"a": {"$republic": "noul", "instructions": "x", "criteria": null}}}),
            "[tool] decide failed: UnsupportedFeatureError: this provider answers no decision questions",
        ),
    ] {
        let results = run(&bench, &[(op, args.clone())]).await;
        let text = results[0].as_str().unwrap_or_default();
        assert!(text.starts_with(&format!("!{expected}")), "{op} {args}: {text}");
    }
}

/// A provider that embeds and decides.
struct Oracle;

struct OracleClient;

#[async_trait]
impl ModelProvider for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn client(&self, _: &str) -> Result<Arc<dyn ModelClient>, ModelError> {
        Ok(Arc::new(OracleClient))
    }
}

#[async_trait]
impl ModelClient for OracleClient {
    async fn stream(&self, _: &ModelRequest) -> Result<ModelStream, ModelError> {
        Err(ModelError::Unsupported("no chat".into()))
    }

    async fn embed(&self, request: &EmbedRequest) -> Result<Embeddings, ModelError> {
        let length = request.dimensions.unwrap_or(1);
        let vectors = request.texts.iter().map(|it| vec![it.len() as f64; length as usize]).collect();
        Ok(Embeddings { vectors, model: request.model.clone(), usage: None })
    }

    async fn decide(&self, request: &DecideRequest) -> Result<Decisions, ModelError> {
        let answers: Map<_, _> =
            request.questions.iter().map(|(id, it)| (id.clone(), json!({"of": it, "state": request.state}))).collect();
        Ok(Decisions { answers, model: request.model.clone(), usage: Some(TokenUsage::default()) })
    }
}

/// Code mode of an own agent, with an oracle.
struct WithOracle(CodeMode);

impl Plugin for WithOracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn register(&self, registry: &mut Registry) -> Result<(), PluginError> {
        registry.models(Arc::new(Oracle));
        self.0.register(registry)
    }
}

fn with(models: Models) -> Bench {
    let code = CodeMode::new([]).runners(Arc::new(Scripted)).models(models);
    Setup { plugin: Some(Box::new(WithOracle(code))), ..Setup::default() }.start([Script::text("hi")])
}

#[tokio::test]
async fn embeddings_and_decisions_pass_through() {
    let bench = with(Models::Default("oracle:o".into()));
    let question = json!({"$republic": "choice", "instructions": "Which?", "criteria": ["a", "b"]});
    let results = run(
        &bench,
        &[
            ("embed", json!({"spec": null, "texts": ["ab", "c"], "dimensions": 2})),
            ("decide", json!({"spec": null, "state": {"x": 1}, "questions": {"q": question}})),
        ],
    )
    .await;
    assert_eq!(results[0], json!({"vectors": [[2.0, 2.0], [1.0, 1.0]], "model": "o", "token_usage": null}));
    let asked = json!({"type": "choice", "instructions": "Which?", "criteria": ["a", "b"]});
    assert_eq!(results[1]["answers"], json!({"q": {"of": asked, "state": {"x": 1}}}));
}

#[tokio::test]
async fn the_default_model_is_the_embedders_choice() {
    let ask = [("chat", json!({"spec": null, "messages": "x", "options": {}}))];
    let results = run(&with(Models::Named), &ask).await;
    assert_eq!(results[0], json!("![invalid_input] No default model: pass a 'provider:model' spec."));
    let results = run(&with(Models::Default("fake:chosen".into())), &ask).await;
    assert_eq!(results[0]["model"], "chosen");
    let results = run(&with(Models::Session), &ask).await;
    assert_eq!(results[0]["model"], "m");
    let resolver = Models::Resolver(Arc::new(|spec, ctx| match spec {
        Some("fake:forbidden") => Err("not that one".to_owned()),
        _ => Ok(ModelChoice {
            spec: format!("fake:{}", ctx.session),
            options: ModelOptions { seed: Some(4), ..ModelOptions::default() },
        }),
    }));
    let bench = with(resolver);
    let results = run(&bench, &ask).await;
    assert_eq!(results[0]["model"], "s");
    assert_eq!(bench.model.requests()[0].options.seed, Some(4));
    let results = run(&bench, &[("chat", json!({"spec": "fake:forbidden", "messages": "x"}))]).await;
    assert_eq!(results[0], json!("![invalid_input] not that one"));
}

#[tokio::test]
async fn a_host_without_models_says_so() {
    use bub_testing::{NoEnvironment, context};
    let ctx = context(Arc::new(NoEnvironment));
    let tool = CodeMode::new([]).runners(Arc::new(Scripted)).models(Models::Session).run_code();
    let code = r#"call republic.chat {"messages": "x"}"#;
    let reply = tool.call(&ctx, json!({"code": code, "timeout_seconds": 5})).await.unwrap();
    assert_eq!(reply.rendering(), "![invalid_input] Republic models need a running Bub agent.\n");
}
