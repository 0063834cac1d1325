//! What a request with a long history costs: time and memory, from the kernel's messages to the socket.
//!
//! `cargo bench -p bub-models --bench requests`. Each row is a whole exchange over loopback with a server
//! that reads the body and answers one word; `exchange` is the same with one message. `serialize` writes a
//! body that is there already as a value, the least that a library for JSON can do. What a row holds at
//! most (`max alloc`) is the client's, which has the thread alone; the body's size is told before.
#![expect(clippy::expect_used, reason = "a bench that can't run is to stop")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use bub_kernel::{
    message::{Message, Part, ProviderData, Role, ToolCallRequest},
    model::{ModelClient, ModelOptions, ModelProvider as _, ModelRequest},
    turn::RunId,
};
use bub_models::{Provider, ProviderConfig, ProviderKind, Wire};
use divan::{AllocProfiler, Bencher};
use futures::StreamExt as _;
use serde_json::{Map, Value, json};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

/// How many messages a long conversation has.
const N_MESSAGES: usize = 2_000;

fn main() {
    divan::main();
}

/// Reads requests and answers each with one word, on threads of its own; keeps the last body.
struct Server {
    address: String,
    body: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    fn start(wire: Wire) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let body = Arc::new(Mutex::new(Vec::new()));
        let kept = body.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = kept.clone();
                std::thread::spawn(move || serve(stream, wire, &kept));
            }
        });
        Self { address, body }
    }
}

/// Answers the requests of one connection until it ends.
fn serve(stream: TcpStream, wire: Wire, kept: &Mutex<Vec<u8>>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::with_capacity(256 * 1024, stream);
    let events = word(wire);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: ";
    loop {
        let mut size = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", value)) => size = value.trim().parse().ok()?,
                Some(_) => {}
                None if line.is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; size];
        reader.read_exact(&mut body).ok()?;
        *kept.lock().ok()? = body;
        writer.write_all(format!("{head}{}\r\n\r\n{events}", events.len()).as_bytes()).ok()?;
    }
}

/// A whole stream of one word.
fn word(wire: Wire) -> String {
    let events = match wire {
        Wire::Chat => {
            vec![json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]})]
        }
        Wire::Responses => vec![
            json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": "ok"}),
            json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
        ],
        Wire::Messages => vec![
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "ok"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}}),
            json!({"type": "message_stop"}),
        ],
        Wire::Gemini => {
            vec![
                json!({"candidates": [{"content": {"parts": [{"text": "ok"}], "role": "model"}, "finishReason": "STOP"}]}),
            ]
        }
    };
    let end = if wire == Wire::Chat { "data: [DONE]\n\n" } else { "" };
    events.iter().map(|it| format!("data: {it}\n\n")).collect::<String>() + end
}

/// A conversation: questions, thoughts where the wire has them, calls of some size, results, and answers.
fn conversation(wire: Wire) -> Vec<Message> {
    let turn = |idx: usize| {
        let mut metadata = Map::new();
        let mut parts = vec![Part::Text("Let me look at it.".into())];
        match wire {
            Wire::Gemini => drop(metadata.insert("thoughtSignature".into(), "c2lnbmF0dXJl".repeat(20).into())),
            Wire::Messages => {
                let item = json!({"type": "thinking", "thinking": "hm ".repeat(50), "signature": "S".repeat(200)});
                let payload = json!({"provider": "bench", "after_chars": 0, "after_calls": 0, "item": item});
                parts.insert(0, Part::ProviderData(ProviderData { api_format: "messages".into(), payload }));
            }
            Wire::Chat | Wire::Responses => {}
        }
        let call = ToolCallRequest {
            id: format!("call_{idx}"),
            name: "fs_write".into(),
            arguments: json!({"path": format!("src/file_{idx}.rs"), "content": "x".repeat(400)}).to_string(),
            metadata,
        };
        let mut asked = Message::parts(Role::Assistant, parts);
        asked.tool_calls.push(call.clone());
        [
            Message::text(Role::User, format!("What does file {idx} hold?")),
            asked,
            Message::tool_result(call, &json!("fn main() {}\n".repeat(20))),
            Message::text(Role::Assistant, "It holds a program."),
        ]
    };
    let mut messages: Vec<_> = (0..N_MESSAGES / 4).flat_map(turn).collect();
    messages.push(Message::text(Role::User, "go on"));
    messages
}

/// A client, its server, and what it asks.
struct Exchange {
    runtime: tokio::runtime::Runtime,
    server: Server,
    client: Arc<dyn ModelClient>,
    request: ModelRequest,
}

impl Exchange {
    /// Has asked once, so that the connection is there.
    fn new(wire: Wire, messages: Vec<Message>) -> Self {
        let server = Server::start(wire);
        let kind = match wire {
            Wire::Chat | Wire::Responses => ProviderKind::Ollama,
            Wire::Messages => ProviderKind::Anthropic,
            Wire::Gemini => ProviderKind::Google,
        };
        let mut config = ProviderConfig::new("bench", kind);
        config.api_key = Some("x".to_owned());
        config.api_base = Some(format!("http://{}/v1", server.address));
        config.api_format = Some(wire);
        let request = ModelRequest {
            run: RunId("run-bench".into()),
            model: "m".into(),
            system: None,
            messages,
            tools: Vec::new(),
            options: ModelOptions::default(),
        };
        let exchange = Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
            server,
            client: Provider::new(config).client("m").expect("a client"),
            request,
        };
        exchange.ask();
        exchange
    }

    fn ask(&self) {
        self.runtime.block_on(async {
            let mut events = self.client.stream(&self.request).await.expect("a stream");
            while let Some(event) = events.next().await {
                event.expect("a whole answer");
            }
        });
    }

    /// What was sent.
    fn body(&self) -> Vec<u8> {
        self.server.body.lock().expect("no panic").clone()
    }
}

const WIRES: [Wire; 4] = [Wire::Chat, Wire::Responses, Wire::Messages, Wire::Gemini];

/// One message and one word back.
#[divan::bench(args = WIRES, sample_count = 100)]
fn hello(bencher: Bencher<'_, '_>, wire: &Wire) {
    let exchange = Exchange::new(*wire, vec![Message::text(Role::User, "hello")]);
    bencher.bench_local(|| exchange.ask());
}

/// The long conversation and one word back.
#[divan::bench(args = WIRES, sample_count = 100)]
#[expect(clippy::print_stderr, reason = "a figure beside the table")]
fn conversations(bencher: Bencher<'_, '_>, wire: &Wire) {
    let exchange = Exchange::new(*wire, conversation(*wire));
    eprintln!("{wire:?}: a body of {} bytes", exchange.body().len());
    bencher.bench_local(|| exchange.ask());
}

/// The body of the conversation in the chat format, from a value.
#[divan::bench(sample_count = 100)]
fn serialize(bencher: Bencher<'_, '_>) {
    let body = Exchange::new(Wire::Chat, conversation(Wire::Chat)).body();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    bencher.bench_local(|| serde_json::to_vec(&body).expect("JSON"));
}
