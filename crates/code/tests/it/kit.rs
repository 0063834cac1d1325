//! A host for code under test, and what came of a run.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bub_kernel::{
    code::{CodeError, CodeHost, CodeRequest, CodeRunner},
    error::ToolError,
};
use serde_json::{Value, json};

/// Long enough for anything that ends at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The tools that code finds here.
pub(crate) const TOOLS: [&str; 9] = ["add", "echo", "sleep", "fail", "never", "big", "nested", "print", "asyncio"];

/// A runner under test.
pub(crate) struct Subject {
    pub(crate) runner: Arc<dyn CodeRunner>,
}

/// What came of a run.
pub(crate) struct Outcome {
    /// All that was printed.
    pub(crate) output: String,
    /// When it came, since the start.
    pub(crate) stamps: Vec<(Duration, String)>,
    /// What was called, in order of arrival.
    pub(crate) calls: Vec<(String, Value)>,
    /// `None` when it was dropped.
    pub(crate) end: Option<Result<(), CodeError>>,
    /// How long it took, with the drop.
    pub(crate) took: Duration,
    /// Calls that were dropped before they ended.
    pub(crate) n_dropped: usize,
    /// The most calls that were open at the same time.
    pub(crate) max_open: usize,
    /// Counts calls, also those after the end.
    pub(crate) late_calls: Arc<AtomicUsize>,
}

impl Subject {
    /// Runs code to its end.
    pub(crate) async fn run(&self, code: &str) -> Outcome {
        let outcome = self.run_for(code, PATIENCE).await;
        assert!(outcome.end.is_some(), "did not end: {code}\nprinted: {}", outcome.output);
        outcome
    }

    /// Runs code, and drops it when it does not end in time.
    pub(crate) async fn run_for(&self, code: &str, limit: Duration) -> Outcome {
        let tools: Vec<String> = TOOLS.iter().map(|it| (*it).to_owned()).collect();
        let request = CodeRequest { code, filename: "<run_code-00000000>", tools: &tools };
        let host = TestHost::default();
        let late_calls = host.late_calls.clone();
        let end = tokio::time::timeout(limit, self.runner.run(request, &host)).await.ok();
        let took = host.start.elapsed();
        let log = host.log.into_inner().unwrap();
        Outcome {
            output: log.stamps.iter().map(|(_, text)| text.as_str()).collect(),
            stamps: log.stamps,
            calls: log.calls,
            end,
            took,
            n_dropped: host.n_open.load(Ordering::SeqCst),
            max_open: host.max_open.load(Ordering::SeqCst),
            late_calls,
        }
    }

    /// Checks that code ends well and prints `expected`.
    pub(crate) async fn prints(&self, code: &str, expected: &str) {
        let outcome = self.run(code).await;
        assert_eq!((outcome.output.as_str(), outcome.failure().as_str()), (expected, ""), "{code}");
    }

    /// Checks that code raises an error of the type `kind` whose text has `part`.
    pub(crate) async fn raises(&self, code: &str, kind: &str, part: &str) -> Outcome {
        let outcome = self.run(code).await;
        match &outcome.end {
            Some(Err(CodeError::Raised { error, .. })) => {
                let found = error.split(':').next().unwrap_or_default();
                assert!(found == kind && error.contains(part), "{code}\nexpected {kind}: {part}\nfound {error}");
            }
            other => panic!("{code}\nexpected {kind}: {part}\nfound {other:?}"),
        }
        outcome
    }
}

impl Outcome {
    /// What went wrong, if anything.
    pub(crate) fn failure(&self) -> String {
        match &self.end {
            Some(Ok(())) => String::new(),
            Some(Err(CodeError::Raised { error, traceback })) => format!("{error}\n{traceback}"),
            Some(Err(err)) => format!("{err:?}"),
            None => "dropped".into(),
        }
    }

    pub(crate) fn traceback(&self) -> &str {
        match &self.end {
            Some(Err(CodeError::Raised { traceback, .. })) => traceback,
            other => panic!("expected a traceback, found {other:?}"),
        }
    }

    /// The argument of the call of `echo`.
    pub(crate) fn echoed(&self) -> &Value {
        &self.calls.iter().find(|(name, _)| name == "echo").expect("echo was called").1["value"]
    }

    pub(crate) fn count(&self, tool: &str) -> usize {
        self.calls.iter().filter(|(name, _)| name == tool).count()
    }
}

struct TestHost {
    start: Instant,
    log: Mutex<Log>,
    n_open: AtomicUsize,
    max_open: AtomicUsize,
    late_calls: Arc<AtomicUsize>,
}

impl Default for TestHost {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            log: Mutex::default(),
            n_open: AtomicUsize::new(0),
            max_open: AtomicUsize::new(0),
            late_calls: Arc::default(),
        }
    }
}

#[derive(Default)]
struct Log {
    stamps: Vec<(Duration, String)>,
    calls: Vec<(String, Value)>,
}

#[async_trait]
impl CodeHost for TestHost {
    async fn call_tool(&self, name: &str, arguments: Value) -> Result<Value, ToolError> {
        self.log.lock().unwrap().calls.push((name.to_owned(), arguments.clone()));
        self.late_calls.fetch_add(1, Ordering::SeqCst);
        let n_open = self.n_open.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_open.fetch_max(n_open, Ordering::SeqCst);
        let result = answer(name, &arguments).await;
        self.n_open.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn write(&self, text: &str) {
        self.log.lock().unwrap().stamps.push((self.start.elapsed(), text.to_owned()));
    }
}

async fn answer(name: &str, arguments: &Value) -> Result<Value, ToolError> {
    let number = |key: &str| arguments[key].as_u64().unwrap_or_default();
    match name {
        "add" => match (arguments["a"].as_i64(), arguments["b"].as_i64()) {
            (Some(a), Some(b)) => Ok(json!(a + b)),
            _ => Err(ToolError::invalid("add takes two integers, a and b")),
        },
        "echo" => Ok(arguments["value"].clone()),
        "sleep" => {
            tokio::time::sleep(Duration::from_millis(number("ms"))).await;
            Ok(json!(number("ms")))
        }
        "fail" => Err(ToolError::not_found(arguments["message"].as_str().unwrap_or("no such thing"))),
        "never" => std::future::pending().await,
        "big" => Ok(json!("x".repeat(usize::try_from(number("n")).unwrap()))),
        "nested" => Ok((0..number("levels")).fold(Value::Null, |inner, _| json!([inner]))),
        "print" | "asyncio" => Ok(json!(format!("the tool {name}"))),
        "republic.chat" => Ok(json!({
            "text": "an answer", "reasoning": null, "refusal": null, "finish_reason": "stop", "model": "m",
            "token_usage": {"input_tokens": 3, "output_tokens": 4, "reasoning_tokens": null, "cached_tokens": null,
                "cache_write_tokens": null},
            "message": {"$republic": "message", "role": "assistant", "content": ["an answer"]},
        })),
        "republic.stream_open" => Ok(json!({"stream": "s1"})),
        "republic.stream_next" => Ok(json!({"events": [
            {"type": "text", "chunk": "an "}, {"type": "reasoning", "chunk": "hm"}, {"type": "text", "chunk": "answer"},
            {"type": "usage", "usage": {"input_tokens": 1}}, {"type": "other", "event": "Strange"},
            {"type": "completed", "response": {"text": "an answer", "reasoning": "hm", "token_usage": {"output_tokens": 2}}},
        ], "done": true})),
        "republic.stream_close" => Ok(Value::Null),
        "republic.embed" => {
            let n_texts = arguments["texts"].as_array().map_or(0, Vec::len);
            Ok(json!({"vectors": vec![json!([0.5, 1.0]); n_texts], "model": "e", "token_usage": {"input_tokens": 2}}))
        }
        "republic.decide" => {
            let answers: BTreeMap<_, _> = arguments["questions"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(id, question)| (id, json!({ "type": question["$republic"], "noul": 0.75 })))
                .collect();
            Ok(json!({"answers": answers, "model": "d", "token_usage": null}))
        }
        _ => Err(ToolError::not_found(format!("unknown: {name}"))),
    }
}
