//! What comes of an error.

use super::{
    speaker::{End, Say, Trouble},
    *,
};
use bub_models::MAX_REPLY_BYTES;
use std::time::Instant;

/// Half an answer.
fn half() -> Script<'static> {
    Script::new([Say::Text(&["half"])]).ending(End::Missing)
}

/// Plays a reply that is to fail, after these words.
async fn fail(bench: &Bench, reply: Reply, text: &str) -> ModelError {
    let (events, err) = bench.play(reply).await;
    assert_eq!(text_of(&events), text);
    assert!(calls_of(&events).is_empty(), "calls of an answer that failed are not complete");
    err.unwrap_or_else(|| panic!("no error after {events:?}"))
}

fn error(bench: &Bench, trouble: Trouble) -> Reply {
    Reply::status(trouble.status())
        .header("content-type", "application/json")
        .body(bench.speaker.error(trouble).to_string())
}

/// Plays an error and compares how its debug form begins.
async fn expect(bench: &Bench, trouble: Trouble, expected: &str) -> Checked {
    let err = fail(bench, error(bench, trouble), "").await;
    assert!(format!("{err:?}").starts_with(expected), "{err:?} is not {expected}");
    Ok(())
}

pub(super) async fn unauthorized(bench: &Bench) -> Checked {
    expect(bench, Trouble::Key, "Auth(").await
}

pub(super) async fn forbidden(bench: &Bench) -> Checked {
    expect(bench, Trouble::Permission, "Auth(").await
}

pub(super) async fn no_model(bench: &Bench) -> Checked {
    expect(bench, Trouble::NoModel, "Rejected { status: Some(404)").await
}

pub(super) async fn late(bench: &Bench) -> Checked {
    let err = fail(bench, error(bench, Trouble::Late), "").await;
    assert!(matches!(err, ModelError::Rejected { status: Some(408), .. }) && err.is_retryable(), "{err:?}");
    Ok(())
}

pub(super) async fn too_many_with_wait(bench: &Bench) -> Checked {
    let err = fail(bench, error(bench, Trouble::TooMany).header("retry-after", "7"), "").await;
    let expected = Some(Duration::from_secs(7));
    assert!(matches!(&err, ModelError::RateLimited { retry_after, .. } if *retry_after == expected), "{err:?}");
    Ok(())
}

pub(super) async fn too_many(bench: &Bench) -> Checked {
    let err = fail(bench, error(bench, Trouble::TooMany), "").await;
    assert!(matches!(&err, ModelError::RateLimited { retry_after: None, .. }), "{err:?}");
    Ok(())
}

pub(super) async fn internal(bench: &Bench) -> Checked {
    expect(bench, Trouble::Internal, "Failed { status: Some(500)").await
}

pub(super) async fn bad_gateway(bench: &Bench) -> Checked {
    let page = "<html><head><title>502 Bad Gateway</title></head><body><h1>502</h1></body></html>";
    let err = fail(bench, Reply::status(502).header("content-type", "text/html").body(page), "").await;
    assert_eq!(err.to_string(), "the provider failed (HTTP 502): an HTML page, '502 Bad Gateway'");
    assert!(err.is_retryable());
    Ok(())
}

pub(super) async fn overloaded(bench: &Bench) -> Checked {
    expect(bench, Trouble::Overloaded, "Overloaded {").await
}

pub(super) async fn too_long(bench: &Bench) -> Checked {
    expect(bench, Trouble::TooLong, "ContextLength(").await
}

pub(super) async fn filtered(bench: &Bench) -> Checked {
    let err = fail(bench, bench.speaker.filtered(), "").await;
    assert!(matches!(err, ModelError::ContentFilter(_)), "{err:?}");
    Ok(())
}

pub(super) async fn error_event(bench: &Bench) -> Checked {
    let mut events = bench.speaker.events(&half());
    events.push(bench.speaker.overloaded_event());
    let err = fail(bench, Reply::raw_sse([bench.speaker.write(&events)]), "half").await;
    assert!(matches!(err, ModelError::Overloaded { .. }), "{err:?}");
    Ok(())
}

pub(super) async fn missing_end(bench: &Bench) -> Checked {
    let calling = Script::new([Say::Text(&["half"]), Say::Call("c1", "f", &["{}"])]).ending(End::Missing);
    for script in [half(), calling] {
        for reply in [bench.reply(&script), bench.reply(&script).close()] {
            let err = fail(bench, reply, "half").await;
            assert!(matches!(err, ModelError::Incomplete(_)), "{err:?}");
        }
    }
    Ok(())
}

pub(super) async fn stall(bench: &Bench) -> Checked {
    let mut config = bench.config();
    config.timeouts.between = Duration::from_millis(100);
    bench.server.reply(bench.reply(&half()).stall());
    let (events, err) = ask(&client(config)).await;
    assert_eq!(text_of(&events), "half");
    assert!(matches!(err, Some(ModelError::Stalled(ref text)) if text.contains("100ms")), "{err:?}");
    bench.server.hung_up(1, Duration::from_secs(5)).await;
    Ok(())
}

pub(super) async fn silence(bench: &Bench) -> Checked {
    let mut config = bench.config();
    config.timeouts.first_byte = Duration::from_millis(100);
    bench.server.reply(bench.reply(&half()).delay(Duration::from_secs(30)));
    let (_, err) = ask(&client(config)).await;
    assert!(matches!(err, Some(ModelError::Timeout(ref text)) if text.contains("100ms")), "{err:?}");
    Ok(())
}

pub(super) async fn page(bench: &Bench) -> Checked {
    let page = Reply::status(200).header("content-type", "text/html").body("<html>\n<body>log in</body></html>");
    let err = fail(bench, page, "").await;
    assert!(matches!(&err, ModelError::Protocol(text) if text.contains("log in")), "{err:?}");
    Ok(())
}

pub(super) async fn empty(bench: &Bench) -> Checked {
    for reply in [Reply::raw_sse([""; 0]), Reply::status(200)] {
        let err = fail(bench, reply, "").await;
        assert!(matches!(&err, ModelError::Incomplete(text) if text.contains("empty reply")), "{err:?}");
    }
    Ok(())
}

pub(super) async fn cap(bench: &Bench) -> Checked {
    // An event without an end, and something that is no stream at all; the words of many events count
    // in what all wires share.
    let piece = "x".repeat(1024 * 1024);
    let n_pieces = MAX_REPLY_BYTES / piece.len() + 2;
    for start in ["data: ", "x"] {
        let pieces = std::iter::once(start).chain(std::iter::repeat_n(piece.as_str(), n_pieces));
        let err = fail(bench, Reply::raw_sse(pieces), "").await;
        assert!(matches!(&err, ModelError::Protocol(text) if text.contains("50 MiB")), "{err:?}");
    }
    Ok(())
}

pub(super) async fn retry(bench: &Bench) -> Checked {
    let mut config = bench.config();
    config.retries.max = 1;
    bench.server.reply(Reply::status(503)).reply(bench.reply(&Script::new([Say::Text(&["x"])])));
    let (events, err) = ask(&client(config)).await;
    assert!(err.is_none(), "{err:?}");
    let waits = events.iter().filter(|it| matches!(it, ModelEvent::Retry { .. })).count();
    assert_eq!((waits, text_of(&events).as_str(), bench.server.requests().len()), (1, "x", 2));
    assert!(matches!(&events[0], ModelEvent::Retry { reason, .. } if reason.contains("503")), "{events:?}");
    Ok(())
}

pub(super) async fn no_retry_after_output(bench: &Bench) -> Checked {
    let mut config = bench.config();
    config.retries.max = 5;
    let client = client(config);
    let mut failing = bench.speaker.events(&half());
    failing.push(bench.speaker.overloaded_event());
    for reply in [bench.reply(&half()).close(), Reply::raw_sse([bench.speaker.write(&failing)])] {
        let before = bench.server.requests().len();
        bench.server.reply(reply);
        let (events, err) = ask(&client).await;
        assert!(err.is_some() && text_of(&events) == "half", "{events:?}");
        assert!(!events.iter().any(|it| matches!(it, ModelEvent::Retry { .. })), "{events:?}");
        assert_eq!(bench.server.requests().len(), before + 1);
    }
    Ok(())
}

/// How soon the server must see that the answer was dropped; it takes some milliseconds on an idle machine.
const HANG_UP_LIMIT: Duration = Duration::from_secs(5);

pub(super) async fn cancel(bench: &Bench) -> Checked {
    bench.server.reply(bench.reply(&half()).stall());
    let mut stream = bench.client().stream(&hello()).await?;
    while !matches!(stream.next().await, Some(Ok(ModelEvent::Text(_)))) {}
    assert_eq!(bench.server.hangups(), 0);
    let start = Instant::now();
    drop(stream);
    bench.server.hung_up(1, HANG_UP_LIMIT).await;
    let took = start.elapsed();
    assert!(took < HANG_UP_LIMIT, "the server saw the hang-up after {took:?}");
    Ok(())
}
