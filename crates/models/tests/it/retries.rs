use super::*;
use std::time::Instant;

fn with_retries(server: &ModelServer, max: u32) -> Arc<dyn ModelClient> {
    let mut config = config(server);
    config.retries.max = max;
    client(config)
}

fn waits(events: &[ModelEvent]) -> Vec<Duration> {
    events.iter().filter_map(|it| if let ModelEvent::Retry { wait, .. } = it { Some(*wait) } else { None }).collect()
}

#[tokio::test]
async fn r174_max_retries_counts_repetitions() {
    for (max, n_requests) in [(1, 2), (0, 1)] {
        let server = ModelServer::start();
        server.reply(Reply::status(503)).reply(Reply::text("x"));
        let (events, err) = ask(&with_retries(&server, max)).await;
        assert_eq!(server.requests().len(), n_requests);
        assert_eq!(err.is_none(), max == 1, "{err:?}");
        assert_eq!(waits(&events).len(), n_requests - 1);
    }
}

#[tokio::test]
async fn r186_waits_that_the_server_asks_for_are_kept_and_told() {
    let server = ModelServer::start();
    server
        .reply(Reply::status(529).header("retry-after", "0.3"))
        .reply(Reply::status(429).header("retry-after-ms", "500").body("slow down"))
        .reply(Reply::text("x"));
    let (events, err) = ask(&with_retries(&server, 2)).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(waits(&events), [Duration::from_millis(300), Duration::from_millis(500)]);
    let ModelEvent::Retry { reason, .. } = &events[1] else { panic!("{events:?}") };
    assert_eq!(reason, "rate limited: slow down");
    let at: Vec<_> = server.requests().iter().map(|it| it.at).collect();
    assert!(at[1] - at[0] >= Duration::from_millis(300) && at[2] - at[1] >= Duration::from_millis(500));
    assert_eq!(text_of(&events), "x");
}

#[tokio::test]
async fn only_what_may_pass_is_tried_again() {
    for (status, n_requests) in [
        (400, 1),
        (401, 1),
        (402, 1),
        (403, 1),
        (404, 1),
        (422, 1),
        (408, 2),
        (409, 2),
        (425, 2),
        (429, 2),
        (500, 2),
        (502, 2),
        (503, 2),
        (529, 2),
    ] {
        let server = ModelServer::with(move |_| Reply::status(status).header("retry-after", "0"));
        let (_, err) = ask(&with_retries(&server, 1)).await;
        assert!(err.is_some());
        assert_eq!(server.requests().len(), n_requests, "{status}");
    }
}

#[tokio::test]
async fn broken_connections_are_tried_again_only_before_output() {
    let server = ModelServer::start();
    server.reply(Reply::raw_sse([": hi\n\n"]).close()).reply(Reply::text("x"));
    let (events, err) = ask(&with_retries(&server, 1)).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!((text_of(&events).as_str(), server.requests().len()), ("x", 2));
    for nothing in
        [Reply::status(200), Reply::raw_sse(["data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n"])]
    {
        let server = ModelServer::start();
        server.reply(nothing).reply(Reply::text("x"));
        let (events, err) = ask(&with_retries(&server, 1)).await;
        assert!(err.is_none(), "{err:?}");
        assert_eq!((text_of(&events).as_str(), server.requests().len()), ("x", 2));
    }
    let server = ModelServer::start();
    server.reply(Reply::text("half").no_finish().no_done().close()).reply(Reply::text("x"));
    let (events, err) = ask(&with_retries(&server, 5)).await;
    assert!(matches!(err, Some(ModelError::Incomplete(_))), "{err:?}");
    assert_eq!((text_of(&events).as_str(), server.requests().len()), ("half", 1));
    let server = ModelServer::start();
    server.reply(Reply::raw_sse(["data: {\"error\":{\"code\":503}}\n\n"])).reply(Reply::text("x"));
    let (events, err) = ask(&with_retries(&server, 1)).await;
    assert!(err.is_none(), "{err:?}");
    assert_eq!(text_of(&events), "x");
}

#[tokio::test]
async fn dropping_ends_a_wait_and_a_stream_at_once() {
    let server = ModelServer::start();
    server
        .reply(Reply::status(429).header("retry-after", "4"))
        .reply(Reply::text("half").no_finish().no_done().stall());
    let client = with_retries(&server, 1);
    let start = Instant::now();
    let mut stream = client.stream(&hello()).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(ModelEvent::Retry { .. }))));
    assert!(tokio::time::timeout(Duration::from_millis(50), stream.next()).await.is_err());
    drop(stream);
    let mut stream = client.stream(&hello()).await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(ModelEvent::Text(_)))));
    assert_eq!(server.hangups(), 0);
    drop(stream);
    server.hung_up(1, Duration::from_secs(10)).await;
    assert_eq!(server.requests().len(), 2);
    assert!(start.elapsed() < Duration::from_secs(20));
}
