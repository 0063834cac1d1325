use std::os::unix::fs::PermissionsExt as _;

use bub_kernel::{
    message::{Media, MediaKind, MediaSource, Part, ToolCallRequest},
    tape::{EntryKind, Tape},
};

use super::*;

/// Base64 of 3,000 bytes, different for each letter.
fn data(letter: char) -> String {
    letter.to_string().repeat(4_000)
}

fn image(source: MediaSource) -> Message {
    let media = Media { kind: MediaKind::Image, media_type: "image/png".into(), source };
    Message::parts(Role::User, vec![Part::Text("see".into()), Part::Media(media)])
}

fn photo(letter: char) -> NewEntry {
    NewEntry::message(&image(MediaSource::Data(data(letter))))
}

impl Home {
    fn open(&self, session: &str) -> Tape {
        Tape::new(TapeName::session("/srv/demo", session), Arc::new(self.reopened()), Arc::new(FixedClock::default()))
            .with_sidecars(&["spill".to_owned()])
    }

    /// The files of media, without those that are being written.
    fn blobs(&self) -> Vec<String> {
        let Ok(files) = fs::read_dir(self.dir.path().join("tapes/blobs")) else { return Vec::new() };
        let mut names: Vec<_> = files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// What a request would have of the only message with media on a tape.
async fn loaded(tape: &Tape) -> Message {
    let entries = tape.read(&TapeQuery::default().kind(EntryKind::Message)).await.unwrap();
    let mut messages = [Message::from_payload(&entries[0].payload).unwrap()];
    tape.load_media(&mut messages).await;
    let [message] = messages;
    message
}

#[tokio::test]
async fn r160_media_is_kept_once_beside_the_tapes() {
    let home = Home::new();
    for session in ["s1", "s2"] {
        home.open(session).append([photo('a'), photo('a'), photo('b')]).await.unwrap();
    }
    let blobs = home.blobs();
    assert_eq!(blobs.len(), 2);
    let folder = home.dir.path().join("tapes/blobs");
    for (path, mode) in [(folder.clone(), 0o700), (folder.join(&blobs[0]), 0o600)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
    }
    assert!(fs::metadata(folder.join(&blobs[0])).unwrap().len() == 3_000);
    let text = String::from_utf8(home.bytes()).unwrap();
    assert!(text.lines().all(|it| it.len() < 400), "{text}");
    let payload = &home.open("s1").read(&TapeQuery::default()).await.unwrap()[2].payload;
    let url = payload["content"][1]["url"].as_str().unwrap();
    assert_eq!(payload["content"][1], json!({"type": "image", "media_type": "image/png", "url": url}));
    assert!(blobs.contains(&url.strip_prefix("sha256:").unwrap().to_owned()));
    assert_eq!(loaded(&home.open("s2")).await, image(MediaSource::Data(data('a'))));
}

#[tokio::test]
async fn media_of_results_and_answers_is_set_aside_too() {
    let home = Home::new();
    let block = json!({"type": "audio", "media_type": "audio/wav", "data": data('a')});
    let result = json!({"type": "tool_content", "content": [{"type": "text", "text": "t"}, block]});
    let call = ToolCallRequest { id: "c".into(), name: "x".into(), arguments: "{}".into(), metadata: <_>::default() };
    let picture = image(MediaSource::Data(data('b'))).parts;
    home.open("s1")
        .append([
            NewEntry::tool_call(std::slice::from_ref(&call), &picture),
            NewEntry::tool_result(vec![json!("plain"), result.clone(), json!({"type": "image", "data": data('c')})]),
        ])
        .await
        .unwrap();
    assert_eq!(home.blobs().len(), 2);
    let entries = home.open("s1").read(&TapeQuery::default()).await.unwrap();
    assert!(entries[0].payload["content"][1]["url"].is_string());
    let results = &entries[1].payload["results"];
    assert_eq!(results[0], "plain");
    // What is no content is nobody's media.
    assert_eq!(results[2]["data"], data('c'));
    let mut messages = [Message::tool_result(call.clone(), &results[1])];
    home.open("s1").load_media(&mut messages).await;
    assert_eq!(messages[0], Message::tool_result(call, &result));
}

#[tokio::test]
async fn what_is_no_base64_becomes_a_text() {
    let home = Home::new();
    let tape = home.open("s1");
    let data_url = format!("data:image/gif;base64,{}", data('a'));
    tape.append([
        NewEntry::message(&image(MediaSource::Data("§ not base64".into()))),
        NewEntry::message(&image(MediaSource::Url("https://example.org/x.png".into()))),
        NewEntry::message(&image(MediaSource::Url(data_url.clone()))),
    ])
    .await
    .unwrap();
    let entries = tape.read(&TapeQuery::default()).await.unwrap();
    let said = "[image/png left out: it is not base64]";
    assert_eq!(entries[0].payload["content"][1], json!({"type": "text", "text": said}));
    assert_eq!(entries[1].payload["content"][1]["url"], "https://example.org/x.png");
    assert!(entries[2].payload["content"][1]["url"].as_str().unwrap().starts_with("sha256:"));
    // So it is in a request that comes before the record.
    let mut messages = [image(MediaSource::Data("§".into())), image(MediaSource::Url(data_url))];
    tape.load_media(&mut messages).await;
    assert_eq!(messages[0].parts[1], Part::Text(said.into()));
    assert_eq!(messages[1], image(MediaSource::Data(data('a'))));
}

#[tokio::test]
async fn old_tapes_keep_their_media_inside() {
    let payload = json!({"role": "user", "content": [
        {"type": "text", "text": "see"},
        {"type": "image", "media_type": "image/png", "data": data('a')},
    ]});
    let entry = json!({"id": 1, "kind": "message", "payload": payload, "meta": {}, "date": ""});
    let home = Home::with(format!("{entry}\n"));
    assert_eq!(loaded(&home.open("s1")).await, image(MediaSource::Data(data('a'))));
    assert!(home.blobs().is_empty());
}

#[tokio::test]
async fn media_that_is_gone_or_damaged_is_told() {
    let gone = || Part::Text("[image/png left out: it is no longer kept]".into());
    let cut = |path: &Path| fs::write(path, "x").unwrap();
    let zeroed = |path: &Path| fs::write(path, [0; 3_000]).unwrap();
    let check = async |damage: &dyn Fn(&Path), heals: bool| {
        let home = Home::new();
        let tape = home.open("s1");
        tape.append([photo('a')]).await.unwrap();
        damage(&home.dir.path().join("tapes/blobs").join(&home.blobs()[0]));
        assert_eq!(loaded(&tape).await.parts[1], gone());
        // Whoever has it brings it back, as long as it is plain that something is missing.
        tape.append([photo('a')]).await.unwrap();
        let expected = image(MediaSource::Data(data('a'))).parts.remove(1);
        assert_eq!(loaded(&tape).await.parts[1], if heals { expected } else { gone() });
    };
    check(&|path| fs::remove_file(path).unwrap(), true).await;
    check(&cut, true).await;
    check(&zeroed, false).await;
    let home = Home::new();
    for url in ["sha256:../../../etc/passwd", "sha256:", "sha256:00"] {
        let mut messages = [image(MediaSource::Url(url.into()))];
        home.open("s1").load_media(&mut messages).await;
        assert_eq!(messages[0].parts[1], gone());
    }
}

#[tokio::test]
async fn a_request_has_room_for_the_newest_media() {
    let home = Home::new();
    let of_mb = |n: usize| image(MediaSource::Data("A".repeat(n * 1_398_104)));
    let mut messages = [of_mb(1), of_mb(15), of_mb(15), of_mb(21), of_mb(8)];
    home.open("s1").load_media(&mut messages).await;
    let texts: Vec<_> = messages
        .iter()
        .map(|it| match &it.parts[1] {
            Part::Text(text) => text.as_str(),
            _ => "sent",
        })
        .collect();
    assert_eq!(texts, ["sent", "sent", "sent", "[image/png left out: it has 21.0 MiB, more than 20.0 MiB]", "sent"]);
    let mut messages = [of_mb(12), of_mb(15), of_mb(15)];
    home.open("s1").load_media(&mut messages).await;
    let said = "[image/png left out: the media of a request may have 40.0 MiB in all]";
    assert_eq!(messages[0].parts[1], Part::Text(said.into()));
}

#[tokio::test]
async fn media_goes_with_the_last_tape_that_names_it() {
    let home = Home::new();
    let (one, two) = (home.open("s1"), home.open("s2"));
    one.append([photo('a'), photo('b')]).await.unwrap();
    two.append([photo('b'), photo('c')]).await.unwrap();
    assert_eq!(home.blobs().len(), 3);
    one.reset(false).await.unwrap();
    assert_eq!(home.blobs().len(), 2, "only the first tape named one of them");
    let archive = two.reset(true).await.unwrap().unwrap();
    assert_eq!(home.blobs().len(), 2, "the archive still names them");
    assert!(fs::read_to_string(archive).unwrap().contains("sha256:"));
    assert!(home.blobs().iter().all(|it| it.len() == 64), "nothing stays set apart");
}

#[tokio::test]
async fn a_reset_in_a_turn_keeps_what_the_turn_goes_on_with() {
    let home = Home::new();
    let tape = home.open("s1");
    tape.append([photo('a'), photo('b')]).await.unwrap();
    let fork = tape.journaled_fork();
    fork.tape().reset(false).await.unwrap();
    fork.tape().append([photo('b')]).await.unwrap();
    assert_eq!(home.blobs().len(), 2, "nothing is removed before the turn ends");
    fork.commit().await.unwrap();
    assert_eq!(home.blobs().len(), 1);
    assert_eq!(loaded(&tape).await, image(MediaSource::Data(data('b'))));
}

#[tokio::test]
async fn media_of_a_running_turn_is_not_removed() {
    let home = Home::new();
    let (one, two) = (home.open("s1"), home.open("s2"));
    one.append([photo('a')]).await.unwrap();
    let fork = two.journaled_fork();
    fork.tape().append([photo('a')]).await.unwrap();
    one.reset(false).await.unwrap();
    assert_eq!(loaded(fork.tape()).await, image(MediaSource::Data(data('a'))));
    fork.commit().await.unwrap();
    assert_eq!(loaded(&two).await, image(MediaSource::Data(data('a'))));
}

#[tokio::test]
async fn a_turn_that_is_thrown_away_leaves_no_media() {
    let home = Home::new();
    let tape = home.open("temp");
    let fork = tape.fork();
    fork.tape().append([photo('a')]).await.unwrap();
    assert_eq!(loaded(fork.tape()).await, image(MediaSource::Data(data('a'))));
    drop(fork);
    assert_eq!(fs::read_dir(home.dir.path()).unwrap().count(), 0);
    // One without a journal that is kept after all sets its media aside then.
    let fork = tape.fork();
    fork.tape().append([photo('a')]).await.unwrap();
    fork.commit().await.unwrap();
    assert_eq!(home.blobs().len(), 1);
}

#[tokio::test]
async fn media_that_cannot_be_written_stays_on_the_tape() {
    let home = Home::with("");
    fs::write(home.dir.path().join("tapes/blobs"), "a file").unwrap();
    let tape = home.open("s1");
    tape.append([photo('a')]).await.unwrap();
    assert!(String::from_utf8(home.bytes()).unwrap().contains(&data('a')));
    assert_eq!(loaded(&tape).await, image(MediaSource::Data(data('a'))));
    tape.reset(false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn media_is_never_removed_under_a_tape_that_is_written_meanwhile() {
    let home = Home::new();
    let cleaner = async {
        for _ in 0..60 {
            let tape = home.open("s1");
            tape.append([photo('a')]).await.unwrap();
            tape.reset(false).await.unwrap();
        }
    };
    let writer = async {
        for idx in 0..60 {
            let tape = home.open(&format!("w{idx}"));
            tape.append([photo('a')]).await.unwrap();
            assert_eq!(loaded(&tape).await, image(MediaSource::Data(data('a'))), "{idx}");
            tape.reset(false).await.unwrap();
        }
    };
    let keeper = async {
        let tape = home.open("keeper");
        for idx in 0..60 {
            tape.append([photo('b')]).await.unwrap();
            home.open("other").append([photo('b')]).await.unwrap();
            home.open("other").reset(false).await.unwrap();
            assert_eq!(loaded(&tape).await, image(MediaSource::Data(data('b'))), "{idx}");
        }
    };
    tokio::join!(cleaner, writer, keeper);
    home.open("s1").append([photo('a')]).await.unwrap();
    home.open("s1").reset(false).await.unwrap();
    assert_eq!(home.blobs().len(), 1, "{:?}", home.blobs());
}

#[tokio::test]
async fn an_append_that_must_fail_is_known_beforehand() {
    let home = Home::new();
    home.store.check_append(&home.tape, 100).await.unwrap();
    assert_eq!(fs::read_dir(home.dir.path()).unwrap().count(), 0, "asking makes nothing");
    home.append(&["a"]).await;
    home.store.check_append(&home.tape, 100).await.unwrap();
    let full = home.store.check_append(&home.tape, u64::MAX / 2).await.unwrap_err().to_string();
    assert!(full.contains("No space left"), "{full}");
    let sidecar = home.tape.sidecar("spill");
    fs::create_dir(home.store.path(&sidecar)).unwrap();
    let folder = home.store.check_append(&sidecar, 1).await.unwrap_err().to_string();
    assert!(folder.contains("not a regular file"), "{folder}");
}
