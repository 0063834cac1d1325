//! `web.fetch`, against a scripted server on this machine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bub_kernel::{
    error::{ErrorKind, ToolError},
    tool::{Caller, ToolContext, ToolReply, erase},
    turn::TurnState,
};
use bub_testing::{NoEnvironment, try_call};
use bub_tools::web::{PrivateAddresses, RenderHtml, WebFetch, WebSettings};
use serde_json::{Value, json};

use crate::support::{Reply, Server, answer};

/// A call by the model in a session of the local terminal.
fn context() -> ToolContext {
    bub_testing::context(Arc::new(NoEnvironment))
}

/// A call in a session that comes from elsewhere.
fn remote(caller: Caller) -> ToolContext {
    ToolContext { state: Arc::new(TurnState::default()), caller, ..context() }
}

fn with(private_addresses: PrivateAddresses) -> WebFetch {
    WebFetch::new(WebSettings { private_addresses, ..WebSettings::default() })
}

async fn fetch(args: Value) -> Result<ToolReply, ToolError> {
    try_call(WebFetch::default(), &context(), args).await
}

/// The words of an error that a person reads.
async fn fetch_error(args: Value) -> String {
    let err = fetch(args).await.unwrap_err();
    assert!(matches!(err.kind, ErrorKind::Tool | ErrorKind::InvalidInput), "{err:?}");
    assert!(!err.cause().contains(['\0', '\u{fffd}']), "{}", err.cause());
    err.cause().to_owned()
}

async fn served(headers: &[&str], body: impl AsRef<[u8]>) -> (Server, Value) {
    let server = Server::always(answer("200 OK", headers, body)).await;
    let args = json!({"url": server.url("/doc")});
    (server, args)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|it| {
        let (key, value) = it.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then_some(value)
    })
}

#[test]
fn parameters_have_their_defaults() {
    let tool = erase(WebFetch::default());
    let properties = &tool.spec().parameters["properties"];
    assert_eq!(tool.spec().parameters["required"], json!(["url"]));
    assert_eq!(properties["timeout"]["default"], 10);
    assert_eq!(
        properties["headers"]["anyOf"],
        json!([{"type": "object", "additionalProperties": true}, {"type": "null"}])
    );
    let output = tool.spec().output.as_ref().unwrap();
    assert_eq!(output["title"], "WebFetchResult");
    assert_eq!(
        output["properties"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["url", "status", "content_type", "content"]
    );
}

#[test]
fn settings_are_read_with_their_defaults() {
    let read = |text: &str| serde_json::from_str::<WebSettings>(text).unwrap();
    assert_eq!(read("{}"), WebSettings::default());
    assert_eq!(WebSettings::default().max_bytes, 10_485_760);
    assert_eq!(
        read(r#"{"render_html": "raw", "max_bytes": 5, "private_addresses": "deny"}"#),
        WebSettings { render_html: RenderHtml::Raw, max_bytes: 5, private_addresses: PrivateAddresses::Deny }
    );
}

#[tokio::test]
async fn text_comes_with_its_url_status_and_type() {
    let (server, args) = served(&["Content-Type: text/plain; charset=utf-8"], "héllo\r\n").await;
    let reply = fetch(args).await.unwrap();
    assert_eq!(
        reply.value,
        json!({"url": server.url("/doc"), "status": 200, "content_type": "text/plain", "content": "héllo\r\n"})
    );
    assert_eq!(reply.rendering(), "héllo\r\n");
    let head = server.requests().remove(0);
    assert!(head.starts_with("GET /doc HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "accept"), Some("text/markdown"));
    assert_eq!(header(&head, "user-agent"), Some(concat!("bub/", env!("CARGO_PKG_VERSION"))));
    server.closed_within(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn headers_of_the_caller_replace_the_defaults() {
    let (server, mut args) = served(&["Content-Type: text/plain"], "x").await;
    args["headers"] = json!({"ACCEPT": "application/json", "X-Number": 7, "x-null": null, "User-Agent": "me"});
    fetch(args.clone()).await.unwrap();
    let head = server.requests().remove(0);
    assert_eq!(header(&head, "accept"), Some("application/json"));
    assert_eq!(header(&head, "x-number"), Some("7"));
    assert_eq!(header(&head, "x-null"), None);
    assert_eq!(header(&head, "user-agent"), Some("me"));
    assert_eq!(head.matches("accept:").count(), 1);
    for (name, value, expected) in [
        ("a b", json!("x"), "header 'a b': this is no name of a header"),
        ("x", json!("a\r\nb: c"), "header 'x': its value has characters that headers can't have"),
        ("x", json!(["a"]), "header 'x': its value must be a string"),
        ("Content-Length", json!("5"), "header 'Content-Length': this one can't be set"),
    ] {
        args["headers"] = json!({name: value});
        assert_eq!(fetch_error(args.clone()).await, expected);
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn html_reads_as_markdown_and_stays_html_for_code() {
    let html = "<html><head><title>T</title><style>x</style></head><body><h1>Hi</h1><script>s()</script><p>a <b>b</b></p></body></html>";
    let (_server, args) = served(&["Content-Type: text/html"], html).await;
    let reply = fetch(args.clone()).await.unwrap();
    assert_eq!(reply.value["content"], html);
    assert_eq!(reply.rendering(), "# Hi\n\na **b**");
    let raw = WebFetch::new(WebSettings { render_html: RenderHtml::Raw, ..WebSettings::default() });
    assert_eq!(try_call(raw, &context(), args).await.unwrap().rendering(), html);
    // Markdown that the server made itself is left alone.
    let (_server, args) = served(&["Content-Type: text/markdown"], "# *x* <b>").await;
    assert_eq!(fetch(args).await.unwrap().rendering(), "# *x* <b>");
}

#[tokio::test]
async fn charset_is_decoded() {
    for (headers, body, expected) in [
        (&["Content-Type: text/plain; charset=gbk"][..], &b"\xd6\xd0\xce\xc4"[..], "中文"),
        (&["Content-Type: text/plain"], b"\xff\xfeh\0i\0", "hi"),
        (&["Content-Type: text/plain"], b"\xef\xbb\xbfhi", "hi"),
        (&["Content-Type: text/plain"], b"a\xff", "a\u{fffd}"),
        (&[], "pläin".as_bytes(), "pläin"),
    ] {
        let (_server, args) = served(headers, body).await;
        assert_eq!(fetch(args).await.unwrap().value["content"], expected);
    }
    let page = b"<meta charset=windows-1251><p>\xcf\xf0\xe8\xe2\xe5\xf2</p>";
    let (_server, args) = served(&["Content-Type: text/html"], page).await;
    assert_eq!(fetch(args).await.unwrap().rendering(), "Привет");
}

#[tokio::test]
async fn compressed_bodies_are_unpacked_before_they_are_measured() {
    // `printf 'hello, hello, hello\n' | gzip -n`
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcb\x48\xcd\xc9\xc9\xd7\x51\xc8\x40\xa2\xb8\x00\xe7\x42\x6e\x52\x14\x00\x00\x00";
    let headers = ["Content-Type: text/plain", "Content-Encoding: gzip"];
    let (_server, args) = served(&headers, gzip).await;
    assert_eq!(fetch(args.clone()).await.unwrap().rendering(), "hello, hello, hello\n");
    let small = |max_bytes| WebFetch::new(WebSettings { max_bytes, ..WebSettings::default() });
    assert!(try_call(small(20), &context(), args.clone()).await.is_ok());
    let err = try_call(small(19), &context(), args).await.unwrap_err();
    assert!(err.cause().ends_with("the limit is 19 bytes (setting `web.max_bytes`)"), "{}", err.cause());

    let headers = ["Content-Type: text/plain", "Content-Encoding: zstd"];
    let (_server, args) = served(&headers, b"(\xb5/\xfd").await;
    assert!(fetch_error(args).await.ends_with("came with an unknown compression: zstd"));
    let headers = ["Content-Type: text/plain", "Content-Encoding: gzip"];
    let (_server, args) = served(&headers, b"no gzip at all").await;
    assert!(fetch_error(args).await.contains("broke off after 0 bytes"));
}

#[tokio::test]
async fn bodies_beyond_the_cap_end_the_fetch() {
    // One says how much it is, the other never ends.
    let stated = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99000000\r\n\r\n".to_vec();
    let mut endless = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_vec();
    endless.resize(endless.len() + 300_000, b'x');
    for (reply, has) in [(stated, "it has 94.4 MiB, "), (endless, "")] {
        let server = Server::always(Reply::Hang(reply)).await;
        let tool = WebFetch::new(WebSettings { max_bytes: 200_000, ..WebSettings::default() });
        let err = try_call(tool, &context(), json!({"url": server.url("/")})).await.unwrap_err();
        let expected =
            format!("{} is too large: {has}the limit is 195.3 KiB (setting `web.max_bytes`)", server.url("/"));
        assert_eq!(err.cause(), expected);
        server.closed_within(Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn r049_a_silent_server_gives_one_readable_line() {
    let server = Server::always(Reply::Hang(vec![])).await;
    let started = Instant::now();
    let err = fetch(json!({"url": server.url("/slow"), "timeout": 1})).await.unwrap_err();
    assert!((1.0..15.0).contains(&started.elapsed().as_secs_f64()), "{:?}", started.elapsed());
    assert_eq!(err.cause(), format!("timed out after 1 second: {}", server.url("/slow")));
    assert_eq!(err.message, "Tool 'web.fetch' execution failed.");
    assert_eq!(err.details["error"], format!("TimeoutError('timed out after 1 second: {}')", server.url("/slow")));
    server.closed_within(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn timeouts_are_checked() {
    let (_server, mut args) = served(&["Content-Type: text/plain"], "x").await;
    for fine in [json!(0), json!(null), json!(3600)] {
        args["timeout"] = fine;
        assert_eq!(fetch(args.clone()).await.unwrap().rendering(), "x");
    }
    for (wrong, expected) in [
        (json!(-1), "timeout must not be negative, but is -1"),
        (json!(3601), "timeout must be at most 3600 seconds, but is 3601"),
    ] {
        args["timeout"] = wrong;
        let err = fetch(args.clone()).await.unwrap_err();
        assert_eq!((err.kind, err.message.as_str()), (ErrorKind::InvalidInput, expected));
    }
}

#[tokio::test]
async fn r050_addresses_that_are_not_public_are_refused_before_connecting() {
    let server = Server::always(answer("200 OK", &["Content-Type: text/plain"], "secret")).await;
    let port = server.port;
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f.1", "2130706433", "127.1", "0"] {
        let args = json!({"url": format!("http://{host}:{port}/")});
        for (tool, ctx) in [
            (with(PrivateAddresses::Auto), remote(Caller::Model)),
            (with(PrivateAddresses::Auto), remote(Caller::Code)),
            (with(PrivateAddresses::Deny), context()),
        ] {
            let err = try_call(tool, &ctx, args.clone()).await.unwrap_err();
            assert!(err.cause().starts_with("refused to connect to "), "{host}: {}", err.cause());
            assert!(err.cause().contains("`web.private_addresses: allow`"), "{host}: {}", err.cause());
            assert!(err.details["error"].as_str().unwrap().starts_with("PermissionError('"), "{err:?}");
        }
    }
    assert_eq!(server.requests(), Vec::<String>::new());
    for (tool, ctx) in [
        (with(PrivateAddresses::Auto), context()),
        (with(PrivateAddresses::Auto), remote(Caller::Command)),
        (with(PrivateAddresses::Deny), remote(Caller::Command)),
        (with(PrivateAddresses::Allow), remote(Caller::Model)),
    ] {
        let args = json!({"url": format!("http://localhost:{port}/")});
        assert_eq!(try_call(tool, &ctx, args).await.unwrap().rendering(), "secret");
    }
}

#[tokio::test]
async fn r050_r051_metadata_is_refused_although_this_machine_is_not() {
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:169.254.169.254]/",
        "http://2852039166/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://[::ffff:100.100.100.200]/",
        "http://metadata.google.internal/computeMetadata/v1/",
    ] {
        let redirecting = Server::always(answer("302 Found", &[&format!("Location: {url}")], "")).await;
        for url in [url.to_owned(), redirecting.url("/")] {
            for ctx in [context(), remote(Caller::Command)] {
                let started = Instant::now();
                let err = try_call(WebFetch::default(), &ctx, json!({"url": url})).await.unwrap_err();
                assert!(err.cause().contains("cloud metadata"), "{url}: {}", err.cause());
                assert!(started.elapsed() < Duration::from_secs(8), "{url} was tried");
            }
        }
    }
}

#[tokio::test]
async fn r052_other_schemes_are_refused() {
    let redirecting = Server::always(answer("302 Found", &["Location: file:///etc/passwd"], "")).await;
    for url in [
        "file:///etc/passwd",
        "gopher://x/",
        "data:text/plain,hi",
        "ftp://x/",
        "FILE:///etc/passwd",
        &redirecting.url("/"),
    ] {
        let err = fetch_error(json!({"url": url})).await;
        assert!(err.starts_with("only http and https"), "{url}: {err}");
    }
    for (url, expected) in [
        (
            "example.com/x",
            "'example.com/x' is no absolute URL: relative URL without a base; it has to begin with http:// or https://",
        ),
        (
            "localhost:8080/x",
            "only http and https URLs can be fetched, not localhost:; put http:// or https:// in front of the host",
        ),
        ("http://", "'http://' is no absolute URL: empty host"),
        ("", "'' is no absolute URL: relative URL without a base; it has to begin with http:// or https://"),
        ("http://a b/", "'http://a b/' is no absolute URL: invalid international domain name"),
    ] {
        assert_eq!(fetch_error(json!({"url": url})).await, expected);
    }
}

#[tokio::test]
async fn r055_data_gives_a_notice_of_type_and_size() {
    let mut pdf = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n".to_vec();
    pdf.resize(300_000, 0x9d);
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01".as_slice();
    let cases: [(&[&str], &[u8], &str); 8] = [
        (&["Content-Type: application/pdf"], &pdf, "application/pdf (292.9 KiB)"),
        (&["Content-Type: image/png"], png, "image/png (20 bytes)"),
        (&["Content-Type: application/octet-stream"], &[0x81, 0, 3, 0xff], "application/octet-stream (4 bytes)"),
        (&["Content-Type: application/octet-stream"], &pdf, "application/pdf (292.9 KiB)"),
        (&["Content-Type: application/zip"], b"PK\x03\x04", "application/zip (4 bytes)"),
        (&["Content-Type: text/plain"], png, "image/png (20 bytes)"),
        (&[], png, "image/png (20 bytes)"),
        (&[], b"PK\x03\x04\x14\0\0\0", "application/zip (8 bytes)"),
    ];
    for (headers, body, expected) in cases {
        let (server, args) = served(headers, body).await;
        assert_eq!(fetch_error(args).await, format!("{} is not text but {expected}", server.url("/doc")));
    }
    // Of data that is announced nothing is loaded, so its size may stay unknown.
    let server = Server::always(Reply::Hang(b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\n\r\nxx".to_vec())).await;
    assert!(
        fetch_error(json!({"url": server.url("/")})).await.ends_with("is not text but video/mp4 (of unknown size)")
    );
    server.closed_within(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn r057_redirects_are_bounded_and_relative_ones_work() {
    let location = |to: String| answer("302 Found", &[&format!("Location: {to}")], "");
    let looping = Server::always(location("/loop".into())).await;
    let err = fetch_error(json!({"url": looping.url("/loop")})).await;
    assert_eq!(err, format!("more than 10 redirects, the last to {}", looping.url("/loop")));
    assert_eq!(looping.requests().len(), 11);

    let chain = Server::start(move |head| {
        let hop: u32 = head.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        if hop == 0 { answer("200 OK", &["Content-Type: text/plain"], "end") } else { location(format!("{}", hop - 1)) }
    })
    .await;
    assert_eq!(fetch(json!({"url": chain.url("/10")})).await.unwrap().value["url"], chain.url("/0"));
    assert!(fetch_error(json!({"url": chain.url("/30")})).await.starts_with("more than 10 redirects"));

    let relative = Server::start(|head| match head.split(' ').nth(1).unwrap() {
        "/a/x/c" => answer("301 Moved Permanently", &["Location: ../b?q=1"], ""),
        "/a/b?q=1" => answer("307 Temporary Redirect", &["Location: //user@127.0.0.1:1/"], ""),
        other => answer("200 OK", &["Content-Type: text/plain"], other),
    })
    .await;
    let err = fetch_error(json!({"url": relative.url("/a/x/c")})).await;
    assert!(err.starts_with("could not fetch http://user@127.0.0.1:1/: ") && err.contains("refused"), "{err}");

    let odd = Server::start(|head| match head.split(' ').nth(1).unwrap() {
        "/none" => answer("302 Found", &["Content-Type: text/plain"], "no location"),
        _ => answer("302 Found", &["Location: http://[bad/"], ""),
    })
    .await;
    assert_eq!(fetch(json!({"url": odd.url("/none")})).await.unwrap().rendering(), "no location");
    assert!(fetch_error(json!({"url": odd.url("/bad")})).await.contains("redirects to 'http://[bad/'"));
}

#[tokio::test]
async fn r057_secrets_stay_with_the_first_host() {
    let other = Server::always(answer("200 OK", &["Content-Type: text/plain"], "other")).await;
    let elsewhere = other.url("/there");
    let first = Server::start(move |head| match head.split(' ').nth(1).unwrap() {
        "/same" => answer("302 Found", &["Location: /out"], ""),
        _ => answer("302 Found", &[&format!("Location: {elsewhere}")], ""),
    })
    .await;
    let headers = json!({
        "Authorization": "Bearer x", "Cookie": "a=b", "X-Api-Key": "k", "Accept": "text/plain", "Accept-Language": "de"
    });
    let reply = fetch(json!({"url": first.url("/same"), "headers": headers})).await.unwrap();
    assert_eq!(reply.value["url"], other.url("/there"));
    for head in first.requests() {
        assert_eq!(header(&head, "authorization"), Some("Bearer x"), "{head}");
        assert_eq!(header(&head, "x-api-key"), Some("k"), "{head}");
    }
    assert_eq!(first.requests().len(), 2);
    let head = other.requests().remove(0);
    let names = ["authorization", "cookie", "x-api-key"];
    assert_eq!(names.map(|it| header(&head, it)), [None; 3]);
    assert_eq!((header(&head, "accept"), header(&head, "accept-language")), (Some("text/plain"), Some("de")));
}

#[tokio::test]
async fn r058_failures_name_the_status_and_start_of_the_body() {
    let html =
        "<html><head><title>No</title></head><body><h1>Gone</h1><p>Try <a href=\"/new\">new</a></p></body></html>";
    let long = "é".repeat(50_000);
    let cut = format!("HTTP 503 Service Unavailable from URL: {}...", "é".repeat(1_024));
    let cases: [(&str, &[&str], &[u8], &str); 7] = [
        (
            "404 Not Found",
            &["Content-Type: text/plain"],
            b"try /v2 instead\n",
            "HTTP 404 Not Found from URL: try /v2 instead",
        ),
        (
            "404 Not Found",
            &["Content-Type: text/html"],
            html.as_bytes(),
            "HTTP 404 Not Found from URL: # Gone\n\nTry [new](/new)",
        ),
        ("500 Internal Server Error", &[], b"", "HTTP 500 Internal Server Error from URL: (empty body)"),
        ("599 Own", &["Content-Type: application/json"], b"{\"error\": 1}", "HTTP 599 from URL: {\"error\": 1}"),
        (
            "403 Forbidden",
            &["Content-Type: image/png"],
            b"\x89PNG\r\n\x1a\n\0",
            "HTTP 403 Forbidden from URL: (image/png, not text)",
        ),
        ("503 Service Unavailable", &["Content-Type: text/plain"], long.as_bytes(), &cut),
        ("401 Unauthorized", &["WWW-Authenticate: Basic"], b"who?", "HTTP 401 Unauthorized from URL: who?"),
    ];
    for (status, headers, body, expected) in cases {
        let server = Server::always(answer(status, headers, body)).await;
        let err = fetch_error(json!({"url": server.url("/p")})).await;
        assert_eq!(err.replace(&server.url("/p"), "URL"), expected);
    }
    let server = Server::always(Reply::Bytes(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())).await;
    let reply = fetch(json!({"url": server.url("/")})).await.unwrap();
    assert_eq!((reply.value["status"].clone(), reply.rendering()), (json!(204), String::new()));
    assert_eq!(reply.value["content_type"], "application/octet-stream");
    // A body of a failure that never ends is shown as far as it came.
    let slow = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\r\nhelp".to_vec();
    let server = Server::always(Reply::Hang(slow)).await;
    let err = fetch_error(json!({"url": server.url("/"), "timeout": 1})).await;
    assert!(err.starts_with("HTTP 404 Not Found") && err.ends_with(": help"), "{err}");
}

#[tokio::test]
async fn r058_a_drip_ends_with_the_total_time() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_vec();
    let server = Server::always(Reply::Drip(head, Duration::from_millis(100))).await;
    let started = Instant::now();
    let err = fetch_error(json!({"url": server.url("/"), "timeout": 2})).await;
    assert!((2.0..15.0).contains(&started.elapsed().as_secs_f64()), "{:?}", started.elapsed());
    assert_eq!(err, format!("timed out after 2 seconds: {}", server.url("/")));
    server.closed_within(Duration::from_secs(10)).await;
}

#[tokio::test]
async fn r058_cancel_closes_the_connection() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_vec();
    for reply in [Reply::Hang(vec![]), Reply::Drip(head, Duration::from_millis(10))] {
        let server = Server::always(reply).await;
        let ctx = context();
        let call = try_call(WebFetch::default(), &ctx, json!({"url": server.url("/"), "timeout": 60}));
        tokio::select! {
            biased;
            done = call => panic!("{done:?}"),
            () = server.requested() => {}
        }
        server.closed_within(Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn broken_answers_are_one_readable_line() {
    for (bytes, expected) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 50\r\n\r\nhalf"[..],
            "broke off after 4 bytes",
        ),
        (b"", "could not fetch"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "could not fetch"),
    ] {
        let server = Server::always(Reply::Bytes(bytes.to_vec())).await;
        let err = fetch_error(json!({"url": server.url("/")})).await;
        assert!(err.contains(expected) && err.contains(&server.url("/")) && !err.contains('\n'), "{err}");
    }
    let err = fetch_error(json!({"url": "http://127.0.0.1:1/"})).await;
    assert_eq!(err, "could not fetch http://127.0.0.1:1/: Connection refused (os error 111)");
}
