//! What a request asks for.

use super::{speaker::Say, *};
use bub_kernel::{
    message::{Media, MediaKind, MediaSource},
    model::{OutputFormat, ProviderTool, ToolChoice},
};

/// The start of a PNG picture.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";

/// A request for the conversation's first answer, with a tool on offer.
fn with(edit: impl FnOnce(&mut ModelOptions)) -> ModelRequest {
    let mut it = hello();
    it.tools = vec![tool("fs.read")];
    edit(&mut it.options);
    it
}

fn with_media(kind: MediaKind, media_type: &str, data: &str) -> ModelRequest {
    let media = Media { kind, media_type: media_type.into(), source: MediaSource::Data(data.into()) };
    request(vec![Message::parts(Role::User, vec![Part::Text("see".into()), Part::Media(media)])])
}

pub(super) async fn image(bench: &Bench) -> Checked {
    let sent = bench.sent(&with_media(MediaKind::Image, "image/png", PNG)).await?;
    assert_eq!(sent.lines, ["user see".to_owned(), format!("image image/png {PNG}")]);
    Ok(())
}

pub(super) async fn result_image(bench: &Bench) -> Checked {
    let shot = json!({"type": "tool_content", "content": [
        {"type": "text", "text": "a shot"}, {"type": "image", "media_type": "image/png", "data": PNG}]});
    let mut asked = Message::text(Role::Assistant, "");
    asked.tool_calls = vec![call("c1", "{}"), call("c2", "{}")];
    let results =
        [Message::tool_result(call("c1", "{}"), &shot), Message::tool_result(call("c2", "{}"), &json!("two"))];
    let sent = bench.sent(&request([vec![user("hello"), asked], results.to_vec()].concat())).await?;
    let at = |line: &str| sent.lines.iter().position(|it| it.contains(line)).unwrap_or_else(|| panic!("{sent:?}"));
    let picture = at(&format!("image image/png {PNG}"));
    // In the result, right behind it, or behind all results with a word on whose it is.
    assert!(at("result c1") < picture && at("a shot") < picture && at("result c2 two") > 2, "{sent:?}");
    if picture > at("result c2") {
        assert!(sent.lines[picture - 1].contains("result of fs_read"), "{sent:?}");
    }
    Ok(())
}

pub(super) async fn audio(bench: &Bench) -> Checked {
    let sent = bench.sent(&with_media(MediaKind::Audio, "audio/wav", "UklGRg==")).await?;
    assert_eq!(sent.lines, ["user see", "audio audio/wav UklGRg=="]);
    Ok(())
}

pub(super) async fn output_schema(bench: &Bench) -> Checked {
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"],
        "additionalProperties": false});
    let output = OutputFormat { name: "point".into(), schema: schema.clone() };
    assert_eq!(bench.sent(&with(|it| it.output = Some(output))).await?.schema, Some(schema));
    Ok(())
}

async fn choose(bench: &Bench, choice: ToolChoice, expected: &str) -> Checked {
    let sent = bench.sent(&with(|it| it.tool_choice = Some(choice))).await?;
    assert_eq!((sent.choice.as_deref(), sent.functions.as_slice()), (Some(expected), &["fs_read".to_owned()][..]));
    Ok(())
}

pub(super) async fn choice_auto(bench: &Bench) -> Checked {
    choose(bench, ToolChoice::Auto, "auto").await
}

pub(super) async fn choice_none(bench: &Bench) -> Checked {
    choose(bench, ToolChoice::None, "none").await
}

pub(super) async fn choice_required(bench: &Bench) -> Checked {
    choose(bench, ToolChoice::Required, "required").await
}

pub(super) async fn choice_one(bench: &Bench) -> Checked {
    choose(bench, ToolChoice::Tool("fs_read".into()), "fs_read").await
}

pub(super) async fn no_parallel_calls(bench: &Bench) -> Checked {
    assert_eq!(bench.sent(&with(|it| it.parallel_tool_calls = Some(false))).await?.parallel, Some(false));
    assert_eq!(bench.sent(&with(|_| ())).await?.parallel, None);
    Ok(())
}

pub(super) async fn effort(bench: &Bench) -> Checked {
    for effort in ["low", "high"] {
        let sent = bench.sent(&with(|it| it.reasoning_effort = Some(effort.into()))).await?;
        assert_eq!(sent.effort.as_deref(), Some(effort));
    }
    assert_eq!(bench.sent(&with(|_| ())).await?.effort, None);
    Ok(())
}

pub(super) async fn max_tokens(bench: &Bench) -> Checked {
    assert_eq!(bench.sent(&with(|it| it.max_tokens = Some(77))).await?.max_tokens, Some(77));
    Ok(())
}

pub(super) async fn stop(bench: &Bench) -> Checked {
    assert_eq!(bench.sent(&with(|it| it.stop = vec!["END".into(), "\n\n".into()])).await?.stop, ["END", "\n\n"]);
    Ok(())
}

pub(super) async fn seed(bench: &Bench) -> Checked {
    assert_eq!(bench.sent(&with(|it| it.seed = Some(7))).await?.seed, Some(7));
    Ok(())
}

pub(super) async fn system(bench: &Bench) -> Checked {
    let mut it = hello();
    it.system = Some("be kind".into());
    let sent = bench.sent(&it).await?;
    assert_eq!(
        (sent.system.as_slice(), sent.lines.as_slice()),
        (&["be kind".to_owned()][..], &["user hello".to_owned()][..])
    );
    let raw = String::from_utf8(bench.server.requests().pop().unwrap().raw).unwrap();
    assert_eq!(raw.matches("be kind").count(), 1, "{raw}");
    // Without one, there is no empty one.
    assert_eq!(bench.sent(&hello()).await?.system, Vec::<String>::new());
    Ok(())
}

pub(super) async fn extension(bench: &Bench) -> Checked {
    let answers = [
        Script::new([
            Say::Thinking("hm", "S1=="),
            Say::Text(&["a"]),
            Say::Call("c1", "fs_read", &[r#"{"b":1,"a":[2]}"#]),
        ]),
        Script::new([Say::Call("c2", "fs_read", &["{}"]), Say::Call("c3", "fs_read", &[])]),
        Script::new([Say::Thinking("so", "S2=="), Say::Text(&["done"])]),
    ];
    let client = bench.client();
    let mut it = with(|it| it.reasoning_effort = Some("low".into()));
    it.system = Some("be kind".into());
    for answer in &answers {
        bench.server.reply(bench.reply(answer));
        let (events, err) = send(&client, &it).await;
        assert!(err.is_none(), "{err:?}");
        let said = answer_of(&events);
        let calls = said.tool_calls.clone();
        it.messages.push(said);
        it.messages.extend(calls.into_iter().map(|call| Message::tool_result(call, &json!("ok"))));
    }
    it.messages.push(user("more"));
    bench.sent(&it).await?;
    let bodies: Vec<Vec<u8>> = bench.server.requests().into_iter().map(|it| it.raw).collect();
    assert_eq!(bodies.len(), answers.len() + 1);
    for pair in bodies.windows(2) {
        let begin = pair[0].strip_suffix(bench.speaker.closing()).unwrap();
        let (one, two) = (String::from_utf8_lossy(&pair[0]), String::from_utf8_lossy(&pair[1]));
        assert!(pair[1].starts_with(begin), "{one}\nis not the start of\n{two}");
    }
    Ok(())
}

async fn own(bench: &Bench, tool: ProviderTool) -> Result<Vec<Value>, ModelError> {
    let sent = bench.sent(&with(|it| it.provider_tools = vec![tool])).await?;
    assert_eq!(sent.functions, ["fs_read"], "the functions stay");
    Ok(sent.own_tools)
}

pub(super) async fn no_own_tools(bench: &Bench) -> Checked {
    assert_eq!(bench.sent(&with(|_| ())).await?.own_tools, Vec::<Value>::new());
    Ok(())
}

/// Offers a tool, which is to be the only one beside the functions and to be named like that.
async fn offer(bench: &Bench, tool: ProviderTool, words: &[&str]) -> Checked {
    let own = own(bench, tool).await?;
    let text = json!(own).to_string().to_lowercase();
    assert!(own.len() == 1 && words.iter().any(|it| text.contains(it)), "{text}");
    Ok(())
}

pub(super) async fn web_search(bench: &Bench) -> Checked {
    offer(bench, ProviderTool::WebSearch, &["web_search", "googlesearch"]).await
}

pub(super) async fn web_fetch(bench: &Bench) -> Checked {
    offer(bench, ProviderTool::WebFetch, &["web_fetch", "urlcontext"]).await
}

pub(super) async fn code_execution(bench: &Bench) -> Checked {
    offer(bench, ProviderTool::CodeExecution, &["code_execution", "codeexecution", "code_interpreter"]).await
}

pub(super) async fn image_generation(bench: &Bench) -> Checked {
    offer(bench, ProviderTool::ImageGeneration, &["image_generation"]).await
}

pub(super) async fn native_tool(bench: &Bench) -> Checked {
    let definition = bench.speaker.native_tool();
    let api_format = bench.speaker.wire().as_str().to_owned();
    let own = own(bench, ProviderTool::Native { api_format, definition: definition.clone() }).await?;
    assert_eq!(own, [definition]);
    Ok(())
}

pub(super) async fn native_tool_of_others(bench: &Bench) -> Checked {
    let mut refusals = Vec::new();
    for other in SPEAKERS.iter().filter(|it| it.wire() != bench.speaker.wire()) {
        let (api_format, definition) = (other.wire().as_str().to_owned(), other.native_tool());
        refusals.push(own(bench, ProviderTool::Native { api_format, definition }).await);
    }
    // All of them, or the row fails with the one that was not.
    refusals.into_iter().rev().reduce(|one, other| if one.is_ok() { one } else { other }).unwrap().map(drop)
}
