//! Media: from every place, in order, within limits.

use std::sync::Arc;

use bub_host::{LocalEnvironment, LocalOptions};
use bub_kernel::{
    error::ToolError,
    message::{MediaKind, Part},
};
use bub_testing::{NoEnvironment, Script, context};
use serde_json::{Value, json};

use crate::bench::{Bench, Setup, runs};

fn bench(workspace: &std::path::Path, code: &str) -> Bench {
    let options = LocalOptions { workspace: Some(workspace.to_owned()), ..LocalOptions::default() };
    let environment = Arc::new(LocalEnvironment::new(options).unwrap());
    Setup { environment, ..Setup::default() }.start([runs(code), Script::text("seen")])
}

#[tokio::test]
async fn media_follow_the_output_in_the_order_of_the_calls() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.png"), [0, 1, 2]).unwrap();
    let code = "print look\n\
                call attach_image {\"image\": \"a.png\"}\n\
                call attach_audio {\"audio\": \"https://example.org/x/b.mp3?v=1#t\"}\n\
                call attach_video {\"video\": \"data:video/mp4;base64,AAEC\"}\n\
                call attach_video {\"video\": \"gs://bucket/c.webm\"}\n\
                call attach_image {\"image\": {\"$republic\": \"audio\", \"media_type\": \"audio/wav\", \"data\": \"AAAA\", \"url\": null}}";
    let results = bench(dir.path(), code).in_code_mode().await;
    let said = "look\n\"The image is attached to the run_code result.\"\n\"The audio is attached to the run_code result.\"\n\
                \"The video is attached to the run_code result.\"\n\"The video is attached to the run_code result.\"\n\
                \"The image is attached to the run_code result.\"\n";
    // Content that is kept beside the tape may be named instead of repeated.
    let content = results[0]["content"].as_array().unwrap().clone();
    assert_eq!(results[0]["type"], "tool_content");
    let shape: Vec<_> = content.iter().map(|it| (it["type"].as_str().unwrap(), it["media_type"].as_str())).collect();
    assert_eq!(
        shape,
        [
            ("text", None),
            ("image", Some("image/png")),
            ("audio", Some("audio/mpeg")),
            ("video", Some("video/mp4")),
            ("video", Some("video/webm")),
            ("audio", Some("audio/wav")),
        ]
    );
    assert_eq!(content[0]["text"], said);
    assert_eq!(content[2]["url"], "https://example.org/x/b.mp3?v=1#t");
}

#[tokio::test]
async fn the_model_gets_what_was_attached() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.png"), [0, 1, 2]).unwrap();
    let bench = bench(dir.path(), "call attach_image {\"image\": \"a.png\"}");
    bench.in_code_mode().await;
    let request = bench.model.requests().pop().unwrap();
    let media: Vec<_> = request
        .messages
        .iter()
        .flat_map(|it| &it.parts)
        .filter_map(|it| match it {
            Part::Media(media) => Some(media.clone()),
            _ => None,
        })
        .collect();
    let [media] = media.as_slice() else { panic!("{media:?}") };
    assert_eq!((media.kind, media.media_type.as_str()), (MediaKind::Image, "image/png"));
}

#[tokio::test]
async fn a_person_reads_a_line_for_each() {
    let bench = Bench::new([]);
    let text = bench.command("call attach_image {\"image\": \"data:image/gif;base64,AAAA\"}").await.unwrap();
    assert_eq!(text, "\"The image is attached to the run_code result.\"\n[image image/gif, 3 bytes]");
}

#[tokio::test]
async fn what_cannot_be_loaded_says_why() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d.png")).unwrap();
    let bench = bench(dir.path(), "");
    for (image, expected) in [
        (json!("x.nothing"), "Cannot load the image: cannot guess the media type of 'x.nothing'"),
        (json!("https://example.org/"), "Cannot load the image: cannot guess the media type of 'https://example.org/'"),
        (json!("missing.png"), "Cannot load the image: no such file or directory: "),
        (json!("d.png"), "Cannot load the image: not a regular file but a directory: "),
        (json!("data:image/png;base64,!"), "Cannot load the image: the data URL is not base64"),
        (json!({"$republic": "hologram"}), "Unknown republic value: 'hologram'"),
        (
            json!({"$republic": "image", "media_type": "image/png"}),
            "Invalid republic image value: it needs data or url",
        ),
        (json!({"media_type": "image/png"}), "expected a republic object"),
    ] {
        let code = format!("call attach_image {}", json!({"image": image}));
        let text = bench.command(&code).await.unwrap();
        assert!(text.starts_with(&format!("![invalid_input] {expected}")), "{image}: {text}");
    }
}

#[tokio::test]
async fn media_are_lost_with_a_failed_run_and_bounded_in_number() {
    let bench = Bench::new([]);
    let attach = "call attach_image {\"image\": \"data:image/gif;base64,AAAA\"}\n";
    let err = bench.command(&format!("{attach}raise ValueError: x")).await.unwrap_err();
    assert_eq!(err.message, "Code raised ValueError: x");
    let text = bench.command(&attach.repeat(bub_code::MAX_ATTACHMENTS + 1)).await.unwrap();
    let refused =
        format!("![invalid_input] Cannot load the image: a run attaches at most {} files", bub_code::MAX_ATTACHMENTS);
    assert!(text.contains(&refused), "{text}");
}

#[tokio::test]
async fn outside_of_code_they_refuse() {
    let ctx = context(Arc::new(NoEnvironment));
    for (tool, kind) in bub_code::Attach::all().iter().zip(["image", "audio", "video"]) {
        let err: ToolError = tool.call(&ctx, json!({kind: "data:,x"})).await.unwrap_err();
        assert_eq!(err.to_string(), format!("[invalid_input] tools.attach_{kind} can only be called from run_code."));
    }
}

#[test]
fn schemas_are_the_references() {
    let spec = bub_code::Attach::new(MediaKind::Audio).spec_value();
    assert_eq!(
        spec,
        json!({
            "type": "object",
            "properties": {"audio": {
                "$defs": {"Audio": {
                    "properties": {
                        "media_type": {"title": "Media Type", "type": "string"},
                        "data": {"anyOf": [{"format": "binary", "type": "string"}, {"type": "null"}], "default": null, "title": "Data"},
                        "url": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": "Url"},
                    },
                    "required": ["media_type"], "title": "Audio", "type": "object",
                }},
                "anyOf": [{"$ref": "#/$defs/Audio"}, {"type": "string"}],
            }},
            "required": ["audio"],
        })
    );
}

trait SpecValue {
    fn spec_value(&self) -> Value;
}

impl<T: bub_kernel::tool::DynTool> SpecValue for T {
    fn spec_value(&self) -> Value {
        self.spec().parameters.clone()
    }
}
