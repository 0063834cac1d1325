//! What every wire must do, behaviour by behaviour: one table, and a check for each of its rows that
//! knows no wire.
//!
//! A [`Speaker`] says what a service of its wire would say, and reads what it is sent, so that a check
//! is written once. Each row is a test of its own. What a wire can't do stands in the row: either the
//! request is refused before it is sent, or the service offers no such thing, for a reason that is
//! given. The table is a page of the reference.

mod answers;
mod chat;
mod connections;
mod failures;
mod gemini;
mod messages;
mod replays;
mod requests;
mod responses;
mod speaker;

use std::{fmt::Write as _, panic::AssertUnwindSafe, path::PathBuf};

use bub_kernel::{
    message::ToolCallRequest,
    tool::{Exposure, ToolSpec},
};
use bub_models::Wire;
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::{Value, json};

use super::*;
use speaker::{Script, Sent, Speaker};

/// A speaker of each wire, in the order of the table's columns.
const SPEAKERS: [&dyn Speaker; 4] = [&chat::Chat, &responses::Responses, &messages::Messages, &gemini::Gemini];

/// What a check comes to: [`ModelError::Unsupported`] when the wire refuses what is asked of it. All
/// else that is not right is a panic.
type Checked = Result<(), ModelError>;

/// What a wire does that the others do in another way.
#[derive(Clone, Copy, Debug)]
enum Cell {
    /// The request is refused before it is sent, with these words among the reason.
    Refused(&'static str),
    /// The service has no such thing, for this reason.
    Absent(&'static str),
}

use Cell::{Absent, Refused};

struct Behaviour {
    section: &'static str,
    name: &'static str,
    told: &'static str,
    exceptions: Vec<(Wire, Cell)>,
    check: for<'a> fn(&'a Bench) -> BoxFuture<'a, Checked>,
}

/// The rows of the table: a check, what it is called for people, and the wires that pass it not.
macro_rules! behaviours {
    ($($section:literal $module:ident { $($name:ident $told:literal $([$($wire:ident: $cell:expr),+])?,)* })*) => {
        fn behaviours() -> Vec<Behaviour> {
            vec![$($(Behaviour {
                section: $section,
                name: stringify!($name),
                told: $told,
                exceptions: vec![$($((Wire::$wire, $cell)),+)?],
                check: |bench| $module::$name(bench).boxed(),
            },)*)*]
        }

        $($(#[tokio::test]
        async fn $name() {
            hold(stringify!($name)).await;
        })*)*
    };
}

const WHOLE_CALLS: Cell = Absent("a call comes whole, and has no number");

behaviours! {
    "Answers" answers {
        text "Text, in pieces",
        one_call "One call",
        three_calls "Three calls at once",
        empty_arguments "A call without arguments",
        many_pieces "Arguments in many pieces" [Gemini: Absent("a call comes whole")],
        same_number "All calls under the same number" [Gemini: WHOLE_CALLS],
        no_number "Calls without a number" [Gemini: WHOLE_CALLS],
        rising_numbers "Calls under rising numbers" [Gemini: WHOLE_CALLS],
        usage "Usage, with thinking apart",
        cached_usage "Cached tokens",
        refusal "Refusal" [Gemini: Absent("a refusal is told as the filter's")],
        length "End at the limit on tokens",
        filter "End by the content filter" [Messages: Absent("there is a refusal instead, or an error")],
        citation "Citations",
        unknown "Unknown fields and events are ignored",
        odd_json "Keys that occur twice, half surrogate pairs, huge numbers",
    }
    "Thinking" replays {
        thinking_returns "Comes back byte for byte, in its place",
        thinking_after_a_detour "Comes back after another provider has answered",
        thinking_of_others "Does not go to another provider",
    }
    "Packets" connections {
        split_characters "Characters split between packets",
        every_cut "Every cut gives the same events",
        gzip "Compressed replies",
        wrong_content_type "A stream under another content type",
    }
    "Errors" failures {
        unauthorized "401",
        forbidden "403",
        no_model "404, no such model",
        late "408",
        too_many_with_wait "429 with Retry-After",
        too_many "429 without Retry-After",
        internal "500",
        bad_gateway "502, an HTML page",
        overloaded "529",
        too_long "The context is too long",
        filtered "The content filter refuses to answer",
        error_event "An error inside a 200 stream keeps what came",
        missing_end "A stream without its end keeps what came",
        stall "A stream that stalls keeps what came",
        silence "A server that says nothing",
        page "An HTML page with status 200",
        empty "An empty reply",
        cap "A reply of more than 50 MiB",
        retry "503, then an answer: one wait, told",
        no_retry_after_output "No other try once words have come",
        cancel "Dropping the answer hangs up",
    }
    "Requests" requests {
        image "An image in a message",
        result_image "An image in a tool's result",
        audio "Audio in a message" [Responses: Refused("take pictures"), Messages: Refused("takes pictures")],
        output_schema "Structured output",
        choice_auto "Tool choice: auto",
        choice_none "Tool choice: none",
        choice_required "Tool choice: required",
        choice_one "Tool choice: one tool",
        no_parallel_calls "Parallel calls off" [Gemini: Refused("parallel_tool_calls")],
        effort "Reasoning effort",
        max_tokens "The most tokens to write",
        stop "Texts that end the answer" [Responses: Refused("stop")],
        seed "Seed" [Responses: Refused("seed"), Messages: Refused("seed")],
        system "System prompt, once and in the wire's place",
        extension "The next step's body extends this one's",
    }
    "Tools of the provider" requests {
        no_own_tools "None unless asked for",
        web_search "Web search",
        web_fetch "Web fetch" [Chat: Refused("web fetch"), Responses: Refused("web fetch")],
        code_execution "Code execution" [Chat: Refused("code execution")],
        image_generation "Image generation" [
            Chat: Refused("image generation"), Messages: Refused("image generation"),
            Gemini: Refused("image generation")],
        native_tool "A native one, as it is given",
        native_tool_of_others "A native one of another wire is refused" [
            Chat: Refused("cannot be offered by 'chat'"), Responses: Refused("cannot be offered by 'responses'"), Messages: Refused("cannot be offered by 'messages'"),
            Gemini: Refused("cannot be offered by 'gemini'")],
    }
    "Connections" connections {
        redirect "A redirect to another host gets nothing",
        broken_key "A key with a line break is refused before a request",
        base_with_slash "A base URL with a slash at its end",
        base_with_path "A base URL with a path",
    }
}

/// A check's server, and the wire that is spoken with it.
struct Bench {
    speaker: &'static dyn Speaker,
    server: ModelServer,
}

impl Bench {
    fn new(speaker: &'static dyn Speaker) -> Self {
        Self { speaker, server: ModelServer::start() }
    }

    fn config(&self) -> ProviderConfig {
        self.speaker.config(&self.server)
    }

    fn client(&self) -> Arc<dyn ModelClient> {
        client(self.config())
    }

    /// The bytes of an answer.
    fn bytes(&self, script: &Script<'_>) -> String {
        self.speaker.write(&self.speaker.events(script))
    }

    fn reply(&self, script: &Script<'_>) -> Reply {
        Reply::raw_sse([self.bytes(script)])
    }

    /// What a client makes of an answer, which is to be a whole one.
    async fn read(&self, script: &Script<'_>) -> Vec<ModelEvent> {
        self.read_reply(self.reply(script)).await
    }

    async fn read_reply(&self, reply: Reply) -> Vec<ModelEvent> {
        let (events, err) = self.play(reply).await;
        assert!(err.is_none(), "{err:?} after {events:?}");
        events
    }

    async fn play(&self, reply: Reply) -> (Vec<ModelEvent>, Option<ModelError>) {
        self.server.reply(reply);
        ask(&self.client()).await
    }

    /// What the server is told by a request, once it is sent.
    async fn sent(&self, request: &ModelRequest) -> Result<Sent, ModelError> {
        self.sent_by(self.config(), request).await
    }

    async fn sent_by(&self, config: ProviderConfig, request: &ModelRequest) -> Result<Sent, ModelError> {
        self.server.reply(self.reply(&Script::new([speaker::Say::Text(&["x"])])));
        let mut stream = client(config).stream(request).await?;
        while let Some(event) = stream.next().await {
            drop(event?);
        }
        self.server.assert_no_violations();
        let body = self.server.requests().pop().unwrap().body;
        Ok(self.speaker.sent(&body))
    }
}

fn user(words: &str) -> Message {
    Message::text(Role::User, words)
}

fn call(id: &str, arguments: &str) -> ToolCallRequest {
    let metadata = serde_json::Map::new();
    ToolCallRequest { id: id.into(), name: "fs_read".into(), arguments: arguments.into(), metadata }
}

fn tool(name: &'static str) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: name.into(),
        description: "Reads.".into(),
        exposure: Exposure::Auto,
        deferred: false,
        parameters: json!({"type": "object", "properties": {}}),
        output: None,
    })
}

/// What a wire does wrong about a behaviour.
async fn problem(behaviour: &Behaviour, speaker: &'static dyn Speaker) -> Option<String> {
    let wire = speaker.wire();
    let expected = behaviour.exceptions.iter().find(|(it, _)| *it == wire).map(|(_, cell)| *cell);
    if let Some(Absent(reason)) = expected {
        return reason.is_empty().then(|| "no reason is given".to_owned());
    }
    let bench = Bench::new(speaker);
    let checked = AssertUnwindSafe((behaviour.check)(&bench)).catch_unwind().await;
    let found = match (checked, expected) {
        (Ok(Ok(())), None) => return None,
        (Ok(Err(ModelError::Unsupported(text))), Some(Refused(words))) => match bench.server.requests().len() {
            0 if text.contains(words) => return None,
            n => format!("refused after {n} requests: {text}"),
        },
        (Ok(Ok(())), Some(_)) => "it passes, and is marked as refused".to_owned(),
        (Ok(Err(err)), _) => format!("{err:?}"),
        (Err(panic), _) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()))
            .unwrap_or_else(|| "a panic".to_owned()),
    };
    Some(format!("{wire}: {found}"))
}

/// Checks a row over all wires, side by side.
async fn hold(name: &str) {
    let behaviours = behaviours();
    let behaviour = behaviours.iter().find(|it| it.name == name).unwrap();
    let found = futures::future::join_all(SPEAKERS.map(|it| problem(behaviour, it))).await;
    let found: Vec<String> = found.into_iter().flatten().collect();
    assert!(found.is_empty(), "{}\n{}", behaviour.told, found.join("\n"));
}

const HEAD: &str = "\
# What the wires to models do

Each wire format (`api_format`) against each behaviour that is asked of all of them. This page is written by the tests that check it, row by row.

- `yes`: it is done.
- `refused`: the wire can't express it. The request ends with an error that says so before anything is sent; nothing is dropped in silence.
- `none`: the services that speak the wire offer no such thing. The reasons stand below.
";

#[test]
fn every_wire_has_its_column() {
    assert_eq!(SPEAKERS.map(|it| it.wire().as_str()), Wire::ALL.map(Wire::as_str));
}

#[test]
fn reference_page_is_up_to_date() {
    let wires = SPEAKERS.map(Speaker::wire);
    let (mut page, mut section, mut reasons) = (HEAD.to_owned(), "", String::new());
    for Behaviour { section: its, told, exceptions, .. } in behaviours() {
        if section != its {
            section = its;
            let columns = wires.map(|it| format!(" `{it}` |")).concat();
            write!(page, "\n## {section}\n\n| Behaviour |{columns}\n| --- |{}\n", " --- |".repeat(wires.len()))
                .unwrap();
        }
        write!(page, "| {told} |").unwrap();
        for wire in wires {
            let cell = match exceptions.iter().find(|(it, _)| *it == wire) {
                None => "yes",
                Some((_, Refused(_))) => "refused",
                Some((_, Absent(reason))) => {
                    writeln!(reasons, "- {told}, `{wire}`: {reason}.").unwrap();
                    "none"
                }
            };
            write!(page, " {cell} |").unwrap();
        }
        page.push('\n');
    }
    write!(page, "\n## Why there is none\n\n{reasons}\n## Where the system prompt stands\n\n").unwrap();
    for speaker in SPEAKERS {
        writeln!(page, "- `{}`: {}.", speaker.wire(), speaker.system_place()).unwrap();
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/model-wires.md");
    expect_test::expect_file![path].assert_eq(&page);
}
