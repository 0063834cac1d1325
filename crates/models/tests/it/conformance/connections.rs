//! How a request gets to the server, and the bytes of the reply back.

use super::{speaker::Say, *};
use std::io::Write as _;

/// Words, thinking and a call, in characters of every length.
fn small() -> Script<'static> {
    Script::new([Say::Thinking("漢", "SIG=="), Say::Text(&["漢字😀", "é"]), Say::Call("c1", "f", &[r#"{"p":"é"}"#])])
}

pub(super) async fn split_characters(bench: &Bench) -> Checked {
    let script = Script::new([Say::Text(&["漢字😀é"])]);
    assert_eq!(text_of(&bench.read_reply(bench.reply(&script).pieces_of(1)).await), "漢字😀é");
    Ok(())
}

pub(super) async fn every_cut(bench: &Bench) -> Checked {
    let whole = bench.bytes(&small());
    let expected = bench.read(&small()).await;
    assert_eq!((text_of(&expected).as_str(), calls_of(&expected).len()), ("漢字😀é", 1));
    for newline in ["\n", "\r\n", "\r"] {
        // The last event has no blank line after it, nor even a line end.
        let stream = whole.replace("\r\n", "\n").replace('\n', newline);
        let config = |server: &ModelServer| bench.speaker.config(server);
        cuts::at_each_byte(config, stream.trim_end().as_bytes(), |events, err, case| {
            assert!(err.is_none(), "{newline:?}, {case}: {err:?}");
            assert_eq!(events, expected, "{newline:?}, {case}");
        })
        .await;
    }
    Ok(())
}

pub(super) async fn gzip(bench: &Bench) -> Checked {
    let expected = bench.read(&small()).await;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bench.bytes(&small()).as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let reply = Reply::raw_sse([packed.as_slice()]).header("content-encoding", "gzip").pieces_of(7);
    assert_eq!(bench.read_reply(reply).await, expected);
    let trouble = bench.speaker.error(speaker::Trouble::NoModel).to_string();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(trouble.as_bytes()).unwrap();
    let reply = Reply::status(404).header("content-encoding", "gzip").body(packed.finish().unwrap());
    let (_, err) = bench.play(reply).await;
    assert!(matches!(&err, Some(ModelError::Rejected { message, .. }) if message.contains('m')), "{err:?}");
    assert!(!err.unwrap().to_string().contains('\u{fffd}'));
    Ok(())
}

pub(super) async fn wrong_content_type(bench: &Bench) -> Checked {
    let expected = bench.read(&small()).await;
    for kind in ["text/plain", "application/json", "text/html; charset=latin-1", "nonsense"] {
        let reply = bench.reply(&small()).header("content-type", kind);
        assert_eq!(bench.read_reply(reply).await, expected, "{kind}");
    }
    Ok(())
}

pub(super) async fn redirect(bench: &Bench) -> Checked {
    let other = ModelServer::start();
    for status in [301, 302, 303, 307, 308] {
        // The same machine under another name is another host.
        for host in ["127.0.0.1", "localhost"] {
            let location = format!("http://{host}:{}/v1/elsewhere", other.address().port());
            let (_, err) = bench.play(Reply::status(status).header("location", location)).await;
            let text = err.map(|it| it.to_string()).unwrap_or_default();
            assert!(text.contains(&format!("redirects to {host}")) && !text.contains("sk-secret"), "{text}");
        }
    }
    assert!(other.requests().is_empty());
    Ok(())
}

pub(super) async fn broken_key(bench: &Bench) -> Checked {
    for key in ["sk-secret-0123456789\n", "sk-secret\r\nx-evil: 1"] {
        let mut config = bench.config();
        config.api_key = Some(key.into());
        let err = Provider::new(config).client("m").err().unwrap();
        let text = err.to_string();
        assert!(matches!(err, ModelError::Config(_)) && text.contains("line break"), "{text}");
        assert!(!text.contains("sk-secret"), "{text}");
    }
    assert!(bench.server.requests().is_empty());
    Ok(())
}

/// The paths that a request goes to by bases with and without `tail`.
async fn paths(bench: &Bench, path: &str, tail: &str) -> Result<[String; 2], ModelError> {
    let mut paths = Vec::new();
    for base in [path.to_owned(), format!("{path}{tail}")] {
        let mut config = bench.config();
        config.api_base = Some(format!("http://{}{base}", bench.server.address()));
        bench.sent_by(config, &hello()).await?;
        paths.push(bench.server.requests().pop().unwrap().path);
    }
    Ok(<[String; 2]>::try_from(paths).unwrap())
}

pub(super) async fn base_with_slash(bench: &Bench) -> Checked {
    for path in ["", "/v1"] {
        let [plain, slashed] = paths(bench, path, "/").await?;
        assert_eq!(plain, slashed);
        assert!(plain.starts_with(path) && !plain.contains("//"), "{plain}");
    }
    Ok(())
}

pub(super) async fn base_with_path(bench: &Bench) -> Checked {
    let [plain, deep] = paths(bench, "/a", "/deep/path").await?;
    assert!(plain.starts_with("/a/"), "{plain}");
    assert_eq!(deep, plain.replacen("/a/", "/a/deep/path/", 1));
    Ok(())
}
