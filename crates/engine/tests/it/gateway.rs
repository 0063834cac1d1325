//! Channels, what becomes of their messages, and the turns on them.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bub_engine::{EngineSettings, Gateway, GatewayError, GatewaySettings, MAX_WAITING};
use bub_kernel::{
    channel::{Admission, Channel, ChannelError, ChannelKind, Inbox, TurnSnapshot},
    hooks::{Hooks, ToolCall, ToolStep},
    model::ModelError,
    task::TaskScope,
    tool::ToolContext,
    turn::{Inbound, Outbound, OutboundKind, Prompt, SessionId, TurnError, TurnEvent, TurnResult, TurnState},
};
use bub_testing::Script;
use serde_json::json;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, Setup};

/// How long a test waits for something before it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a desk does with messages while a turn runs.
#[derive(Clone, Copy, Default, PartialEq)]
enum Policy {
    #[default]
    None,
    Steer,
    FollowUp,
    Drop,
}

/// How its `send` fails.
#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    Error,
    Panic,
}

/// A channel inside the test.
#[derive(Default)]
struct Desk {
    name: &'static str,
    policy: Policy,
    fault: Fault,
    debounces: bool,
    /// Leaves as soon as it is told to by this.
    leaves: Option<ChannelKind>,
    leave: Notify,
    inbox: Mutex<Option<Inbox>>,
    log: Mutex<Vec<String>>,
    news: Notify,
}

impl Desk {
    fn new(name: &'static str, policy: Policy) -> Arc<Self> {
        Arc::new(Self { name, policy, ..Self::default() })
    }

    fn note(&self, line: String) {
        self.log.lock().unwrap().push(line);
        self.news.notify_one();
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// What was noted, but for the events of turns.
    fn deeds(&self) -> Vec<String> {
        self.log().into_iter().filter(|it| !it.starts_with("event ")).collect()
    }

    /// Waits until the log has `n` lines that begin with `start`.
    #[track_caller]
    fn wait_for(&self, start: &'static str, n: usize) -> impl Future<Output = ()> + '_ {
        let place = std::panic::Location::caller();
        async move {
            let seen = async {
                while self.log().iter().filter(|it| it.starts_with(start)).count() < n {
                    self.news.notified().await;
                }
            };
            let waited = tokio::time::timeout(PATIENCE, seen).await;
            assert!(waited.is_ok(), "{place}: waited in vain for {n} × {start:?}: {:#?}", self.log());
        }
    }

    async fn put(&self, inbound: Inbound) {
        let inbox = self.inbox.lock().unwrap().clone().expect("the gateway runs");
        inbox.put(inbound).await.unwrap();
    }

    async fn say(&self, text: &str) {
        self.put(Inbound { session: Some(SessionId("s".into())), ..self.message("1", text) }).await;
    }

    fn message(&self, chat: &str, text: &str) -> Inbound {
        Inbound::new(self.name, chat, Prompt::Text(text.into()))
    }
}

fn words(inbound: &Inbound) -> String {
    inbound.prompt.as_text().unwrap().replace('\n', "|")
}

/// A desk as a channel; the test holds on to it too.
struct At(Arc<Desk>);

#[async_trait]
impl Channel for At {
    fn name(&self) -> &str {
        self.0.name
    }

    fn kind(&self) -> ChannelKind {
        self.0.leaves.unwrap_or_default()
    }

    fn needs_debounce(&self) -> bool {
        self.0.debounces
    }

    async fn run(&self, inbox: Inbox, cancel: CancellationToken) -> Result<(), ChannelError> {
        *self.0.inbox.lock().unwrap() = Some(inbox);
        self.0.note("listening".into());
        tokio::select! {
            () = cancel.cancelled() => (),
            () = self.0.leave.notified() => (),
        }
        *self.0.inbox.lock().unwrap() = None;
        match self.0.fault {
            Fault::Panic => panic!("a broken channel"),
            Fault::Error if self.0.leaves.is_some() => Err(ChannelError::Other("line cut".into())),
            _ => Ok(()),
        }
    }

    async fn send(&self, outbound: Outbound) -> Result<(), ChannelError> {
        let kind = match outbound.kind {
            OutboundKind::Answer => "answer",
            OutboundKind::Error { stage } => stage,
            OutboundKind::Notice => "notice",
        };
        self.0.note(format!("sent {kind} to {}: {}", outbound.chat, outbound.text));
        match self.0.fault {
            Fault::None => Ok(()),
            Fault::Error => Err(ChannelError::Other("no line".into())),
            Fault::Panic => panic!("a broken channel"),
        }
    }

    fn admit(&self, inbound: &Inbound, now: &TurnSnapshot) -> Option<Admission> {
        if !now.is_running() || words(inbound).starts_with(',') {
            return None;
        }
        match self.0.policy {
            Policy::None => None,
            Policy::Steer => Some(Admission::Steer { reason: None }),
            Policy::FollowUp => Some(Admission::FollowUp),
            Policy::Drop => Some(Admission::Drop),
        }
    }

    fn admitted(&self, inbound: &Inbound, admission: &Admission) {
        let what = format!("{admission:?}").split([' ', '{']).next().unwrap().to_lowercase();
        self.0.note(format!("{what}: {}", words(inbound)));
    }

    fn observe(&self, _: &Inbound, event: &TurnEvent) {
        self.0.note(format!("event {event:?}"));
        assert!(self.0.fault != Fault::Panic, "a broken channel");
    }

    fn ended(&self, inbound: &Inbound, result: Result<TurnResult, TurnError>) {
        let how = match result {
            Ok(result) => result.answer,
            Err(err) => format!("failed: {err}"),
        };
        self.0.note(format!("ended {}: {how}", words(inbound)));
    }
}

/// Holds turns at places, until the test lets them go on.
struct Holds {
    tools: Semaphore,
    ends: Semaphore,
    errors: Mutex<Vec<String>>,
    admission: Option<&'static str>,
    outbound: Option<&'static str>,
}

impl Holds {
    fn new() -> Self {
        Self {
            tools: Semaphore::new(0),
            ends: Semaphore::new(Semaphore::MAX_PERMITS),
            errors: Mutex::default(),
            admission: None,
            outbound: None,
        }
    }
}

/// The holds as hooks.
struct Holding(Arc<Holds>);

#[async_trait]
impl Hooks for Holding {
    fn name(&self) -> &str {
        "holding"
    }

    fn implements(&self) -> &[&'static str] {
        &["resolve_session", "admit", "before_tool", "save_state", "render_outbound", "on_error"]
    }

    async fn resolve_session(&self, inbound: &Inbound) -> Option<SessionId> {
        assert!(!words(inbound).contains("nowhere"), "a broken hook");
        None
    }

    async fn admit(&self, inbound: &Inbound, now: &TurnSnapshot) -> Option<Admission> {
        assert_eq!(now.session, inbound.own_session());
        match self.0.admission {
            Some("hang") => std::future::pending().await,
            Some("panic") => panic!("a broken hook"),
            Some("reason") if now.is_running() => Some(Admission::Steer { reason: Some("a hurry".into()) }),
            Some("steer") => Some(Admission::Steer { reason: None }),
            _ => None,
        }
    }

    async fn before_tool(&self, _: &ToolContext, call: &mut ToolCall) -> ToolStep {
        if call.tool == "say.echo" {
            self.0.tools.acquire().await.unwrap().forget();
        }
        ToolStep::Proceed
    }

    async fn save_state(&self, _: &TurnState, _: &str) {
        self.0.ends.acquire().await.unwrap().forget();
    }

    async fn render_outbound(&self, state: &TurnState, text: &str) -> Vec<Outbound> {
        let Some(channel) = self.0.outbound else { return Vec::new() };
        let outbound = |text: String| Outbound {
            channel: channel.into(),
            chat: state.chat.clone(),
            session: state.session.clone().unwrap(),
            text,
            kind: OutboundKind::Answer,
        };
        vec![outbound(format!("{text}!")), outbound(format!("{text}?"))]
    }

    async fn on_error(&self, stage: &'static str, err: &(dyn std::error::Error + Send + Sync), _: Option<&Inbound>) {
        self.0.errors.lock().unwrap().push(format!("{stage}: {err}"));
    }
}

/// A gateway that runs, what is behind it, and how to end it.
struct Open {
    bench: Bench,
    holds: Arc<Holds>,
    cancel: CancellationToken,
    ended: oneshot::Receiver<Result<(), GatewayError>>,
    _tasks: TaskScope,
}

impl Open {
    async fn with(
        desks: &[&Arc<Desk>],
        scripts: impl IntoIterator<Item = Script>,
        holds: Holds,
        settings: GatewaySettings,
    ) -> Self {
        let holds = Arc::new(holds);
        let hooks: Vec<Arc<dyn Hooks>> = vec![Arc::new(Holding(holds.clone()))];
        let bench = Setup { hooks, ..Setup::default() }.start(scripts);
        let channels = desks.iter().map(|it| Arc::new(At((*it).clone())) as Arc<dyn Channel>).collect();
        let gateway = Gateway::new(bench.runtime.clone(), channels, settings);
        let (tasks, cancel) = (TaskScope::default(), CancellationToken::new());
        let (tx, ended) = oneshot::channel();
        let token = cancel.clone();
        tasks.spawn_to_end(async move { drop(tx.send(gateway.run(token).await)) });
        for desk in desks {
            desk.wait_for("listening", 1).await;
            desk.log.lock().unwrap().clear();
        }
        Self { bench, holds, cancel, ended, _tasks: tasks }
    }

    async fn new(desk: &Arc<Desk>, scripts: impl IntoIterator<Item = Script>) -> Self {
        Self::with(&[desk], scripts, Holds::new(), GatewaySettings { stream: true, ..Default::default() }).await
    }

    async fn close(self) -> Result<(), GatewayError> {
        self.cancel.cancel();
        tokio::time::timeout(PATIENCE, self.ended).await.expect("the gateway ends").unwrap()
    }

    fn n_requests(&self) -> usize {
        self.bench.model.requests().len()
    }
}

fn echo() -> Script {
    Script::calls([("c1", "say_echo", json!({"text": "x"}))])
}

#[tokio::test]
async fn a_message_is_answered_in_its_own_chat() {
    let desk = Desk::new("desk", Policy::None);
    let open = Open::new(&desk, [Script::text("hello"), Script::text("again")]).await;
    desk.put(desk.message("7", "hi")).await;
    desk.wait_for("sent", 1).await;
    assert_eq!(desk.deeds(), ["process: hi", "ended hi: hello", "sent answer to 7: hello"]);
    assert!(desk.log().contains(&r#"event Text("hello")"#.to_owned()), "{:?}", desk.log());
    // The next one of that chat continues its session.
    desk.put(desk.message("7", "more")).await;
    desk.wait_for("sent", 2).await;
    assert_eq!(open.bench.sent(1), ["user: hi", "assistant: hello", "user: more"]);
    open.close().await.unwrap();
}

#[tokio::test]
async fn a_message_for_a_running_turn_is_read_in_its_next_step() {
    let desk = Desk::new("desk", Policy::Steer);
    let open = Open::new(&desk, [echo(), Script::text("done")]).await;
    desk.say("go").await;
    desk.wait_for("event ToolCalls", 1).await;
    desk.say("and this").await;
    desk.wait_for("steer: and this", 1).await;
    assert_eq!(open.bench.runtime.snapshot(&SessionId("s".into())).steering, 1);
    open.holds.tools.add_permits(1);
    desk.wait_for("sent", 1).await;
    assert_eq!(desk.deeds(), ["process: go", "steer: and this", "ended go: done", "sent answer to 1: done"]);
    assert_eq!(open.bench.sent(1), ["user: go", "assistant:  +c1", "tool: said: x", "user: and this"]);
    let text = open.bench.model.requests()[1].messages[3].joined_text();
    assert!(text.starts_with("channel=$desk|chat_id=1\n---Date: "), "steering messages have their facts: {text}");
    open.close().await.unwrap();
}

#[tokio::test]
async fn a_reason_for_steering_is_told_to_the_model() {
    let desk = Desk::new("desk", Policy::None);
    let holds = Holds { admission: Some("reason"), ..Holds::new() };
    let settings = GatewaySettings { stream: true, ..Default::default() };
    let open = Open::with(&[&desk], [echo(), Script::text("done")], holds, settings).await;
    desk.say("go").await;
    desk.wait_for("event ToolCalls", 1).await;
    desk.say("faster").await;
    desk.wait_for("steer: faster", 1).await;
    open.holds.tools.add_permits(1);
    desk.wait_for("sent", 1).await;
    let text = open.bench.model.requests()[1].messages[3].joined_text();
    assert!(text.starts_with("steering_reason=a hurry|channel=$desk|"), "{text}");
    open.close().await.unwrap();
}

#[tokio::test]
async fn a_message_that_comes_as_the_turn_ends_gets_a_turn_of_its_own() {
    let desk = Desk::new("desk", Policy::Steer);
    let holds = Holds { ends: Semaphore::new(0), ..Holds::new() };
    let settings = GatewaySettings { stream: true, ..Default::default() };
    let open = Open::with(&[&desk], [Script::text("one"), Script::text("two")], holds, settings).await;
    desk.say("first").await;
    // The loop has asked for waiting messages for the last time; the turn has not ended yet.
    desk.wait_for("event Final", 1).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    desk.say("late").await;
    desk.wait_for("steer: late", 1).await;
    open.holds.ends.add_permits(2);
    desk.wait_for("sent", 2).await;
    let expected = [
        "process: first",
        "steer: late",
        "ended first: one",
        "sent answer to 1: one",
        "process: late",
        "ended late: two",
        "sent answer to 1: two",
    ];
    assert_eq!(desk.deeds(), expected);
    assert_eq!(open.bench.sent(1), ["user: first", "assistant: one", "user: late"]);
    open.close().await.unwrap();
}

#[tokio::test]
async fn a_message_for_a_turn_that_fails_or_is_cancelled_is_not_lost() {
    for is_cancelled in [false, true] {
        let desk = Desk::new("desk", Policy::Steer);
        let first = if is_cancelled { Script::pending() } else { echo() };
        let broken = Script::error(ModelError::Rejected { status: Some(400), message: "no".into() });
        let scripts = if is_cancelled { vec![first] } else { vec![first, broken] };
        let open = Open::new(&desk, scripts.into_iter().chain([Script::text("fine")])).await;
        desk.say("first").await;
        if is_cancelled {
            tokio::time::sleep(Duration::from_millis(30)).await;
            desk.say("and this").await;
            desk.wait_for("steer", 1).await;
            open.bench.runtime.cancel(&SessionId("s".into()));
            // No step took it, so it has a turn of its own.
            desk.wait_for("ended and this: fine", 1).await;
            assert!(desk.log().contains(&"ended first: failed: cancelled".to_owned()));
        } else {
            desk.wait_for("event ToolCalls", 1).await;
            desk.say("and this").await;
            desk.wait_for("steer", 1).await;
            open.holds.tools.add_permits(1);
            // A step took it, and failed: it is on the tape, for the next turn to see.
            desk.wait_for("ended first: failed", 1).await;
            desk.say("again").await;
            desk.wait_for("ended again: fine", 1).await;
            assert!(open.bench.sent(2).contains(&"user: and this".to_owned()), "{:?}", open.bench.sent(2));
        }
        open.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_context_that_is_begun_anew_keeps_the_messages_that_steer() {
    let desk = Desk::new("desk", Policy::Steer);
    let too_long = Script::error(ModelError::ContextLength("too long".into()));
    let open = Open::new(&desk, [echo(), too_long, Script::text("rescued")]).await;
    desk.say("go").await;
    desk.wait_for("event ToolCalls", 1).await;
    desk.say("and this").await;
    desk.wait_for("steer", 1).await;
    open.holds.tools.add_permits(1);
    desk.wait_for("ended go: rescued", 1).await;
    assert_eq!(open.bench.sent(2), ["user: and this", "user: go"]);
    open.close().await.unwrap();
}

#[tokio::test]
async fn follow_ups_run_one_after_the_other_in_their_order() {
    let desk = Desk::new("desk", Policy::FollowUp);
    let open = Open::new(&desk, [echo(), Script::text("0"), Script::text("1"), Script::text("2")]).await;
    desk.say("start").await;
    desk.wait_for("event ToolCalls", 1).await;
    for text in ["one", "two"] {
        desk.say(text).await;
    }
    desk.wait_for("followup", 2).await;
    open.holds.tools.add_permits(1);
    desk.wait_for("sent", 3).await;
    let starts_and_ends: Vec<_> = desk.deeds().into_iter().filter(|it| !it.starts_with("sent")).collect();
    assert_eq!(
        starts_and_ends,
        [
            "process: start",
            "followup: one",
            "followup: two",
            "ended start: 0",
            "process: one",
            "ended one: 1",
            "process: two",
            "ended two: 2"
        ]
    );
    open.close().await.unwrap();
}

#[tokio::test]
async fn dropped_messages_are_answered_by_nobody() {
    let desk = Desk::new("desk", Policy::Drop);
    let open = Open::new(&desk, [echo(), Script::text("done")]).await;
    desk.say("go").await;
    desk.wait_for("event ToolCalls", 1).await;
    desk.say("never mind").await;
    desk.wait_for("drop: never mind", 1).await;
    open.holds.tools.add_permits(1);
    desk.wait_for("sent", 1).await;
    assert_eq!(open.n_requests(), 2);
    open.close().await.unwrap();
}

#[tokio::test]
async fn commands_run_at_once_beside_a_turn() {
    let desk = Desk::new("desk", Policy::FollowUp);
    let holds = Holds { admission: Some("steer"), ..Holds::new() };
    let settings = GatewaySettings { stream: true, ..Default::default() };
    let open = Open::with(&[&desk], [echo(), Script::text("done")], holds, settings).await;
    // With nothing running, steering is processing.
    desk.say("go").await;
    desk.wait_for("event ToolCalls", 1).await;
    desk.say(",cut").await;
    desk.wait_for("ended ,cut: cut", 1).await;
    assert!(!desk.log().iter().any(|it| it.starts_with("ended go")));
    open.holds.tools.add_permits(1);
    desk.wait_for("ended go: done", 1).await;
    open.close().await.unwrap();
}

#[tokio::test]
async fn quit_forgets_what_waits_and_cancels_all_but_the_caller() {
    let desk = Desk::new("desk", Policy::FollowUp);
    let open = Open::new(&desk, [Script::pending()]).await;
    desk.say("go").await;
    desk.wait_for("process", 1).await;
    desk.say("later").await;
    desk.wait_for("followup", 1).await;
    desk.say(",sleep ms=60000").await;
    desk.wait_for("process: ,sleep", 1).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    desk.say(",leave").await;
    desk.wait_for("ended", 3).await;
    let log = desk.deeds();
    assert!(log.contains(&"ended ,leave: left".to_owned()), "{log:?}");
    assert!(log.contains(&"ended ,sleep ms=60000: failed: cancelled".to_owned()), "{log:?}");
    assert!(log.contains(&"ended go: failed: cancelled".to_owned()), "{log:?}");
    assert_eq!(open.n_requests(), 1, "what waited is forgotten");
    assert_eq!(open.bench.runtime.snapshot(&SessionId("s".into())).running, 0);
    open.close().await.unwrap();
}

#[tokio::test]
async fn sessions_run_side_by_side_and_answers_go_to_their_own_chats() {
    let desk = Desk::new("desk", Policy::Steer);
    let open = Open::new(&desk, [echo(), echo(), Script::text("a"), Script::text("b")]).await;
    desk.put(desk.message("1", "first")).await;
    desk.put(desk.message("2", "second")).await;
    // Both are in the middle of their turns.
    desk.wait_for("event ToolCalls", 2).await;
    open.holds.tools.add_permits(2);
    desk.wait_for("sent", 2).await;
    let mut sent: Vec<_> = desk.log().into_iter().filter(|it| it.starts_with("sent")).collect();
    sent.sort();
    assert!(sent[0].starts_with("sent answer to 1") && sent[1].starts_with("sent answer to 2"), "{sent:?}");
    open.close().await.unwrap();
}

#[tokio::test]
async fn turns_of_one_session_at_once_leave_a_sound_tape() {
    let desk = Desk::new("desk", Policy::None);
    let open = Open::new(&desk, [echo(), echo(), Script::text("a"), Script::text("b"), Script::text("c")]).await;
    desk.say("first").await;
    desk.say("second").await;
    desk.wait_for("event ToolCalls", 2).await;
    open.holds.tools.add_permits(2);
    desk.wait_for("sent", 2).await;
    desk.say("third").await;
    desk.wait_for("sent", 3).await;
    // Each turn was merged in one piece: every call is followed by its result.
    let sent = open.bench.sent(4);
    let calls: Vec<_> = sent.iter().enumerate().filter(|(_, it)| it.ends_with("+c1")).map(|(idx, _)| idx).collect();
    assert_eq!((calls.len(), sent.len()), (2, 9), "{sent:#?}");
    assert!(calls.iter().all(|idx| sent[idx + 1] == "tool: said: x"), "{sent:#?}");
    open.close().await.unwrap();
}

#[tokio::test]
async fn closing_records_running_turns_and_tells_those_who_wait() {
    let desk = Desk::new("desk", Policy::FollowUp);
    let open = Open::new(&desk, [Script::pending()]).await;
    desk.say("go").await;
    desk.wait_for("process", 1).await;
    desk.say("later").await;
    desk.wait_for("followup", 1).await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    let runtime = open.bench.runtime.clone();
    let bench = Bench { runtime, model: open.bench.model.clone(), most: open.bench.most.clone() };
    let started = Instant::now();
    open.close().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(20));
    let log = desk.deeds();
    assert_eq!(
        log[2..],
        ["ended go: failed: cancelled", "sent notice to 1: not answered, since bub stops: later"],
        "{log:?}"
    );
    assert!(bench.tape().await.contains(r#"loop.finish", "data": {"status": "cancelled""#));
}

#[tokio::test]
async fn what_is_being_gathered_when_the_gateway_closes_is_told_too() {
    let desk = Arc::new(Desk { name: "desk", debounces: true, ..Desk::default() });
    let settings = GatewaySettings { debounce: PATIENCE, ..Default::default() };
    let open = Open::with(&[&desk], [], Holds::new(), settings).await;
    desk.say("one").await;
    desk.say("two").await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    open.close().await.unwrap();
    assert_eq!(desk.deeds(), ["sent notice to 1: not answered, since bub stops: one\ntwo"]);
}

#[tokio::test]
async fn a_hook_that_fails_or_never_answers_is_told_and_the_message_processed() {
    for (how, failure) in
        [("panic", "panicked in admit: a broken hook"), ("hang", "did not return from admit within 5 s")]
    {
        let desk = Desk::new("desk", Policy::None);
        let holds = Holds { admission: Some(how), ..Holds::new() };
        let open = Open::with(&[&desk], [Script::text("ok")], holds, GatewaySettings::default()).await;
        desk.say("hi").await;
        desk.wait_for("sent", 2).await;
        let told =
            format!("sent admit_message to 1: An error occurred at stage 'admit_message': hook 'holding' {failure}");
        assert!(desk.log().contains(&told), "{:?}", desk.log());
        assert!(desk.log().contains(&"sent answer to 1: ok".to_owned()), "{:?}", desk.log());
        assert_eq!(*open.holds.errors.lock().unwrap(), [format!("admit_message: hook 'holding' {failure}")]);
        open.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_message_whose_session_cannot_be_told_is_not_put_into_another() {
    let desk = Desk::new("desk", Policy::None);
    let open = Open::new(&desk, []).await;
    desk.put(desk.message("1", "to nowhere")).await;
    desk.wait_for("sent resolve_session", 1).await;
    assert_eq!(open.n_requests(), 0);
    open.close().await.unwrap();
}

#[tokio::test]
async fn failures_of_turns_reach_the_person() {
    let desk = Desk::new("desk", Policy::None);
    let broken = Script::error(ModelError::Rejected { status: Some(400), message: "bad field".into() });
    let open = Open::new(&desk, [broken, Script::text("fine")]).await;
    desk.say("hi").await;
    desk.wait_for("sent turn to 1: An error occurred at stage 'turn': ", 1).await;
    assert!(desk.log().iter().any(|it| it.contains("bad field")), "{:?}", desk.log());
    desk.say("again").await;
    desk.wait_for("sent answer to 1: fine", 1).await;
    open.close().await.unwrap();
}

#[tokio::test]
async fn a_channel_that_fails_or_panics_ends_nothing_but_its_own_delivery() {
    for fault in [Fault::Error, Fault::Panic] {
        let desk = Arc::new(Desk { name: "desk", fault, ..Desk::default() });
        let open = Open::new(&desk, [Script::text("one"), Script::text("two")]).await;
        for n in 1..=2 {
            desk.say("hi").await;
            desk.wait_for("sent answer", n).await;
        }
        let errors = open.holds.errors.lock().unwrap().clone();
        assert!(errors[0].starts_with("dispatch_outbound: "), "{errors:?}");
        open.close().await.unwrap();
    }
}

#[tokio::test]
async fn answers_go_where_the_message_or_a_hook_says() {
    let (desk, other) = (Desk::new("desk", Policy::None), Desk::new("other", Policy::None));
    let settings = GatewaySettings::default();
    let open = Open::with(&[&desk, &other], ["a", "b"].map(Script::text), Holds::new(), settings.clone()).await;
    for output in ["other", "null"] {
        desk.put(Inbound { output: Some(output.into()), ..desk.message("1", output) }).await;
    }
    desk.wait_for("ended", 2).await;
    other.wait_for("sent", 1).await;
    open.close().await.unwrap();
    assert_eq!(other.deeds(), ["sent answer to 1: a"]);
    assert!(!desk.log().iter().any(|it| it.starts_with("sent") || it.starts_with("event")), "{:?}", desk.log());

    let (desk, other) = (Desk::new("desk", Policy::None), Desk::new("other", Policy::None));
    let holds = Holds { outbound: Some("other"), ..Holds::new() };
    let open = Open::with(&[&desk, &other], [Script::text("a")], holds, settings).await;
    desk.say("hi").await;
    other.wait_for("sent", 2).await;
    assert_eq!(other.deeds(), ["sent answer to 1: a!", "sent answer to 1: a?"]);
    open.close().await.unwrap();
}

#[tokio::test]
async fn messages_of_unknown_channels_are_ignored() {
    let desk = Desk::new("desk", Policy::None);
    let open = Open::new(&desk, [Script::text("ok")]).await;
    desk.put(Inbound::new("nobody", "1", Prompt::Text("hi".into()))).await;
    desk.say("hi").await;
    desk.wait_for("sent", 1).await;
    assert_eq!(open.n_requests(), 1);
    open.close().await.unwrap();
}

#[tokio::test]
async fn a_full_queue_is_told_and_takes_no_more() {
    let desk = Desk::new("desk", Policy::FollowUp);
    let open = Open::new(&desk, [Script::pending()]).await;
    desk.say("go").await;
    desk.wait_for("process", 1).await;
    for n in 1..=MAX_WAITING {
        desk.say("more").await;
        desk.wait_for("followup", n).await;
    }
    desk.say("too much").await;
    desk.wait_for("sent notice to 1: 64 messages are waiting in this session already; this one was not taken", 1).await;
    desk.say(",leave").await;
    desk.wait_for("ended", 2).await;
    open.close().await.unwrap();
}

#[tokio::test]
async fn r126_commands_do_not_wait_with_the_messages_that_are_gathered() {
    let desk = Arc::new(Desk { name: "desk", debounces: true, ..Desk::default() });
    let settings = GatewaySettings { debounce: Duration::from_millis(600), ..Default::default() };
    let open = Open::with(&[&desk], [Script::text("hello to you")], Holds::new(), settings).await;
    desk.say("hello").await;
    desk.say("there").await;
    desk.say(",cut").await;
    desk.wait_for("sent", 2).await;
    assert_eq!(
        desk.deeds(),
        [
            "process: ,cut",
            "ended ,cut: cut",
            "sent answer to 1: cut",
            "process: hello|there",
            "ended hello|there: hello to you",
            "sent answer to 1: hello to you"
        ]
    );
    open.close().await.unwrap();
}

#[tokio::test]
async fn a_gateway_ends_when_nobody_listens_any_more() {
    for (kind, fault, expected) in [
        (ChannelKind::Interface, Fault::None, None),
        (ChannelKind::Interface, Fault::Error, Some("channel 'desk' failed: line cut")),
        (ChannelKind::Listener, Fault::None, Some("channel 'desk' ended without being told to")),
        (ChannelKind::Listener, Fault::Panic, Some("channel 'desk' failed: it panicked; see the log")),
    ] {
        let desk = Arc::new(Desk { name: "desk", fault, leaves: Some(kind), ..Desk::default() });
        let background = Arc::new(Desk { name: "back", leaves: Some(ChannelKind::Lifecycle), ..Desk::default() });
        let open = Open::with(&[&desk, &background], [], Holds::new(), GatewaySettings::default()).await;
        desk.leave.notify_one();
        let ended = tokio::time::timeout(PATIENCE, open.ended).await.unwrap().unwrap();
        let failures = ended.err().map(|it| it.failures.join("; "));
        assert_eq!(failures.as_deref(), expected);
    }
}

#[tokio::test]
async fn a_cancelled_turn_that_never_ends_is_dropped() {
    let desk = Desk::new("desk", Policy::Steer);
    // A hook after the loop that never returns.
    let holds = Holds { ends: Semaphore::new(0), ..Holds::new() };
    let settings = GatewaySettings { stream: true, ..Default::default() };
    let open = Open::with(&[&desk], [Script::text("one"), Script::text("two")], holds, settings).await;
    desk.say("first").await;
    desk.wait_for("event Final", 1).await;
    open.bench.runtime.cancel(&SessionId("s".into()));
    desk.wait_for("ended first: failed: cancelled", 1).await;
    open.holds.ends.add_permits(1);
    desk.say("second").await;
    desk.wait_for("ended second: two", 1).await;
    open.close().await.unwrap();
}

#[tokio::test]
async fn steering_is_bounded_and_reaches_the_first_step_without_a_gateway() {
    let setup = Setup { settings: EngineSettings::default(), ..Setup::default() };
    let bench = setup.start([Script::text("ok")]);
    let session = SessionId("s".into());
    for _ in 0..MAX_WAITING {
        bench.runtime.steer(&session, crate::bench::inbound("more")).unwrap();
    }
    let full = bench.runtime.steer(&session, crate::bench::inbound("more")).unwrap_err();
    assert_eq!(full.to_string(), "64 messages are waiting in this session already");
    bench.say("go").await.unwrap();
    assert_eq!(bench.sent(0).len(), MAX_WAITING + 1);
}
