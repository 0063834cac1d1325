//! Turns with a model: what is printed where, and what is recorded.

use bub_testing::{ModelServer, Reply};
use serde_json::{Value, json};

use crate::home::TestHome;

fn usage() -> Value {
    json!({"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020})
}

#[test]
fn a_turn_of_ten_calls_leaves_the_references_tape_and_a_second_one_goes_on() {
    let server = ModelServer::start();
    for idx in 1..=10 {
        let command = format!("echo step-{idx}");
        let id = format!("call_{idx}");
        server.reply(Reply::calls([(id.as_str(), "bash", json!({"command": command}))]).usage(usage()));
    }
    server.reply(Reply::text("all done").usage(usage())).reply(Reply::text("still here").usage(usage()));
    let home = TestHome::with_model(&server);
    assert_eq!(home.run(&["run", "do ten steps"]).ok(), "all done\n");

    let tape = home.tape_lines();
    let kinds: Vec<_> = tape
        .iter()
        .map(|it| match it["payload"]["name"].as_str() {
            Some(name) => format!("{}:{name}", it["kind"].as_str().unwrap()),
            None => it["kind"].as_str().unwrap().to_owned(),
        })
        .collect();
    let mut expected = vec!["anchor:session/start", "event:handoff", "event:loop.start"];
    for step in 1..=11 {
        expected.extend(["event:loop.step.start", "system"]);
        expected.extend((step == 1).then_some("message"));
        if step <= 10 {
            expected.extend(["tool_call", "tool_result"]);
        } else {
            expected.push("message");
        }
        expected.extend(["event:run", "event:loop.step"]);
    }
    expected.push("event:loop.finish");
    assert_eq!(kinds, expected);
    assert_eq!(
        tape.iter().map(|it| it["id"].as_u64().unwrap()).collect::<Vec<_>>(),
        (1..=expected.len() as u64).collect::<Vec<_>>()
    );
    let keys: Vec<_> = tape[0].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["id", "kind", "payload", "meta", "date"]);
    let call = tape.iter().find(|it| it["kind"] == "tool_call").unwrap();
    assert_eq!(
        call["payload"]["calls"],
        json!([{"id": "call_1", "name": "bash", "arguments": "{\"command\":\"echo step-1\"}", "metadata": {}}])
    );
    let run = tape.iter().find(|it| it["payload"]["name"] == "run").unwrap();
    assert_eq!(
        run["payload"]["data"],
        json!({"status": "ok", "usage": {"input_tokens": 1000, "output_tokens": 20, "reasoning_tokens": 0,
            "cached_tokens": 0, "cache_write_tokens": 0, "total_tokens": 1020}, "provider": "openai", "model": "openai:mock"})
    );

    assert_eq!(home.run(&["run", "and now?"]).ok(), "still here\n");
    server.assert_no_violations();
    let last = server.chats().pop().unwrap();
    let roles: Vec<_> = last.messages().iter().map(|it| it["role"].as_str().unwrap().to_owned()).collect();
    assert_eq!(roles.iter().filter(|it| *it == "user").count(), 2);
    assert_eq!(roles.iter().filter(|it| *it == "tool").count(), 10);
    assert_eq!(roles.last().unwrap(), "user");
}

#[test]
fn r157_stdout_has_the_answer_alone() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", json!({"command": "echo noise"}))])).reply(Reply::text("answer"));
    let home = TestHome::with_model(&server);
    let ran = home.run_with(&["run"], b"hi\n");
    assert_eq!(ran.out, "answer\n");
    assert!(ran.err.contains("bash(command: \"echo noise\")") && ran.err.contains("⎿ noise"), "{}", ran.err);
    assert!(!ran.err.contains('\x1b'), "no escape sequences outside a terminal: {}", ran.err);
    assert!(server.chats()[0].messages()[1]["content"].as_str().unwrap().ends_with("---\nhi"));

    server.reply(Reply::text("quiet"));
    let ran = home.run_with(&["run", "-q", "-"], b"hi");
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("quiet\n", ""));
}

#[test]
fn r157_a_refused_key_fails_without_showing_it() {
    let server = ModelServer::start();
    let body = json!({"error": {"message": "Incorrect API key provided: sk-test-0123456789"}});
    server.reply(Reply::status(401).body(body.to_string()));
    let home = TestHome::with_model(&server);
    let ran = home.run(&["run", "hi"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(!ran.err.contains("sk-test-0123456789"), "{}", ran.err);
    assert!(ran.err.contains("BUB_API_KEY") && ran.err.contains("hint: check the key"), "{}", ran.err);
    let said = home.tape_lines().into_iter().find(|it| it["kind"] == "message").unwrap();
    assert!(said["payload"]["content"].as_str().unwrap().ends_with("\nhi"), "the message is kept");
}

#[test]
fn r150_streamed_words_are_printed_once() {
    let server = ModelServer::start();
    for output in ["text", "json", "stream-json"] {
        server.reply(Reply::deltas(["A", "B", "C"].map(|it| json!({"content": it}))).finish("stop"));
        let home = TestHome::with_model(&server);
        let out = home.run(&["run", "--output", output, "hi"]).ok();
        let lines: Vec<Value> = out.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
        match output {
            "text" => assert_eq!(out, "ABC\n"),
            "json" => {
                assert_eq!(lines.len(), 1);
                assert_eq!((&lines[0]["output"], &lines[0]["ok"]), (&json!("ABC"), &json!(true)));
                assert_eq!(lines[0]["session_id"], "cli:local");
            }
            _ => {
                let text: String = lines
                    .iter()
                    .filter(|it| it["kind"] == "text")
                    .map(|it| it["data"]["delta"].as_str().unwrap())
                    .collect();
                assert_eq!(text, "ABC");
                assert_eq!(lines.last().unwrap()["kind"], "result");
            }
        }
    }
}

#[test]
fn failures_of_the_server_are_told_and_recorded() {
    for (reply, expected) in [
        (Reply::status(400).body(r#"{"error": {"message": "bad field"}}"#), "bad field"),
        (Reply::status(500).header("retry-after-ms", "1").body("oops"), "oops"),
        (Reply::text("half of it").no_finish().no_done().close(), "cut off"),
        (Reply::raw_sse(["data: {\"error\": {\"message\": \"stream broke\"}}\n\n"]), "stream broke"),
    ] {
        let server = ModelServer::with(move |_| reply.clone());
        let home = TestHome::with_model(&server).var("BUB_CLIENT_ARGS", r#"{"retry_delay": 0.001}"#);
        let err = home.run(&["run", "hi"]).failed(1);
        assert!(err.contains(expected), "{expected}: {err}");
        let tape = home.tape_lines();
        assert!(tape.iter().any(|it| it["kind"] == "message" && it["payload"]["role"] == "user"));
        assert_eq!(tape.last().unwrap()["payload"]["data"]["status"], "error");
    }
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let server = ModelServer::start();
    server.reply(Reply::text("first words").no_finish().no_done().stall());
    let home = TestHome::with_model(&server).var("BUB_CLIENT_ARGS", r#"{"timeout": 0.3, "max_retries": 0}"#);
    let err = home.run(&["run", "hi"]).failed(1);
    assert!(err.contains("stalled"), "{err}");
    assert!(home.tape_lines().iter().any(|it| it["payload"]["content"] == "first words"));
}

#[test]
fn r132_a_local_model_is_reached_past_the_proxy() {
    let server = ModelServer::start();
    server.reply(Reply::text("ok"));
    let home =
        TestHome::with_model(&server).var("ALL_PROXY", "socks5://127.0.0.1:1").var("HTTP_PROXY", "http://127.0.0.1:1");
    assert_eq!(home.run(&["run", "hi"]).ok(), "ok\n");
}

#[test]
fn r166_a_made_up_tool_does_not_end_the_turn() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "fs_raed", json!({"path": "a.txt"}))])).reply(Reply::text("done"));
    let home = TestHome::with_model(&server);
    assert_eq!(home.run(&["run", "go"]).ok(), "done\n");
    let result = server.chats()[1].messages().last().unwrap().clone();
    assert_eq!((&result["role"], &result["tool_call_id"]), (&json!("tool"), &json!("c1")));
    assert!(result["content"].to_string().contains("fs_read"), "{result}");
}

#[test]
fn r170_an_answer_without_words_is_told_and_not_asked_for_again() {
    let server = ModelServer::start();
    server.reply(Reply::deltas([]).reasoning("hm"));
    let home = TestHome::with_model(&server);
    let output = home.run(&["run", "hi"]);
    let told = output.err.clone();
    assert_eq!(output.ok().trim(), "");
    assert!(told.contains("the model gave no answer"), "{told}");
    assert_eq!(server.chats().len(), 1);
    server.reply(Reply::text("").finish("odd_reason"));
    let told = home.run(&["run", "hi"]).err;
    assert!(told.contains("the model stopped without an answer, for the reason 'odd_reason'"), "{told}");
    // A command that prints nothing is no such case.
    let output = home.run(&["run", ",bash cmd=true"]);
    assert!(!output.err.contains("no answer"), "{}", output.err);
}

#[test]
fn credentials_reach_neither_commands_nor_the_model() {
    let server = ModelServer::start();
    server.reply(Reply::calls([("c1", "bash", json!({"command": "env; cat key.txt"}))])).reply(Reply::text("done"));
    let home = TestHome::with_model(&server);
    home.write("key.txt", "the key is sk-test-0123456789!");
    home.run(&["run", "show me"]).ok();
    let result = server.chats()[1].messages().last().unwrap()["content"].to_string();
    assert!(!result.contains("sk-test-0123456789") && !result.contains("BUB_API_KEY"), "{result}");
    assert!(result.contains("the key is ***!"), "{result}");
    let tape = std::fs::read_to_string(home.tape_file()).unwrap();
    assert!(!tape.contains("sk-test-0123456789"));
}

#[test]
fn options_of_run_reach_the_request() {
    let server = ModelServer::start();
    server.reply(Reply::text("ok"));
    let home = TestHome::with_model(&server);
    home.run(&["run", "--model", "openai:other", "--tools", "fs.read,BASH", "--reasoning-effort", "high", "hi"]).ok();
    let body = &server.chats()[0].body;
    assert_eq!((&body["model"], &body["reasoning_effort"]), (&json!("other"), &json!("high")));
    let names: Vec<_> = body["tools"].as_array().unwrap().iter().map(|it| it["function"]["name"].clone()).collect();
    assert_eq!(names, ["bash", "fs_read"]);
    assert!(home.run(&["run", "--tools", "nope", "hi"]).failed(2).contains("unknown tool name(s): 'nope'"));
}

#[test]
fn an_empty_list_of_tools_or_skills_allows_none() {
    for (command, names, tools, skills) in [
        ("run", ["", ""], json!([]), json!([])),
        ("run", [" fs_read, BASH,", "GH , "], json!(["bash", "fs.read"]), json!(["gh"])),
        ("chat", ["fs.read", ""], json!(["fs.read"]), json!([])),
    ] {
        let server = ModelServer::start();
        server.reply(Reply::text("ok"));
        let home = TestHome::with_model(&server);
        home.run_with(&[command, "hi", "--tools", names[0], "--skills", names[1]], b"").ok();
        let tape = home.tape_lines();
        let start = tape.iter().find(|it| it["payload"]["name"] == "loop.start").unwrap();
        let data = &start["payload"]["data"];
        // As in the reference, an empty list is recorded as none is.
        let recorded = |list: &Value| if *list == json!([]) { Value::Null } else { list.clone() };
        let expected = (recorded(&tools), recorded(&skills));
        assert_eq!((data["allowed_tools"].clone(), data["allowed_skills"].clone()), expected, "{command} {names:?}");
        let body = server.chats()[0].body.clone();
        let n_tools = body["tools"].as_array().map_or(0, Vec::len);
        assert_eq!(n_tools, tools.as_array().unwrap().len(), "{body}");
        assert_eq!(body.to_string().contains("<available_skills>"), skills != json!([]), "{body}");
    }
    let home = TestHome::new();
    assert!(home.run(&["chat", "--tools", "nope"]).failed(2).contains("unknown tool name(s): 'nope'"));
}

#[test]
fn the_workspaces_instructions_are_sent() {
    let server = ModelServer::start();
    server.reply(Reply::text("ok"));
    let home = TestHome::with_model(&server);
    home.write("AGENTS.md", "Answer in rhymes.\n");
    home.run(&["run", "hi"]).ok();
    let system = server.chats()[0].messages()[0]["content"].as_str().unwrap().to_owned();
    assert!(system.contains("<workspace_instruction>\nAnswer in rhymes.\n</workspace_instruction>\n\n<"), "{system}");
}

#[test]
fn other_servers_are_set_as_providers() {
    let server = ModelServer::start();
    server.reply(Reply::text("ok"));
    let home = TestHome::new();
    home.config(&format!(
        "model: mine:big\nproviders:\n  mine:\n    type: openai-compatible\n    api_key: k-0123456789\n    api_base: {}\n",
        server.base_url()
    ));
    assert_eq!(home.run(&["run", "hi"]).ok(), "ok\n");
    let request = server.chats().remove(0);
    assert_eq!(request.header("authorization"), Some("Bearer k-0123456789"));
    assert_eq!(request.body["model"], "big");
}

#[test]
fn files_and_addresses_are_attached() {
    let server = ModelServer::start();
    server.reply(Reply::text("a square")).reply(Reply::text("still a square"));
    let home = TestHome::with_model(&server);
    let png = [0x89, b'P', b'N', b'G', 0x0D, 0x0A, 0x1A, 0x0A];
    home.write("square.png", png);
    let path = home.workspace().join("square.png").display().to_string();
    let run = ["run", "what is it?", "--attach", &path, "-a", "https://x.org/y.jpg"];
    assert_eq!(home.run(&run).ok(), "a square\n");
    assert_eq!(home.run(&["run", "and now?"]).ok(), "still a square\n");
    for request in server.chats() {
        let message = request.messages().iter().find(|it| it["content"].is_array()).cloned().unwrap();
        let content = message["content"].as_array().unwrap();
        assert!(content[0]["text"].as_str().unwrap().ends_with("what is it?"), "{message}");
        assert_eq!(content[1]["image_url"]["url"], "data:image/png;base64,iVBORw0KGgo=");
        assert_eq!(content[2]["image_url"]["url"], "https://x.org/y.jpg");
    }
    home.write("notes.txt", "hi");
    let notes = home.workspace().join("notes.txt").display().to_string();
    for (args, expected) in [
        (["run", "x", "--attach", "missing.png"], "cannot attach"),
        (["run", "x", "--attach", notes.as_str()], "'text/plain' is no image, audio or video"),
        (["run", "x", "--attach", "data:image/png;base64,!"], "the data URL is not base64"),
        (["run", ",help", "--attach", path.as_str()], "a command has no use for it"),
    ] {
        let err = home.run(&args).failed(2);
        assert!(err.contains(expected), "{err}");
    }
}

#[test]
fn sources_and_pictures_of_an_answer_are_told() {
    let server = ModelServer::start();
    let note = json!({"type": "url_citation", "url_citation": {"url": "https://x.org", "title": "X\u{1b}[2J"}});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let reply =
        || Reply::deltas([json!({"content": "see"}), json!({"annotations": [note]}), json!({"images": [image]})]);
    server.reply(reply()).reply(reply());
    let home = TestHome::with_model(&server);
    let ran = home.run(&["run", "draw"]);
    assert_eq!(ran.out, "see\n");
    assert!(ran.err.contains("source: X") && ran.err.contains("<https://x.org>"), "{}", ran.err);
    assert!(
        ran.err.contains("made [image/png, 8 bytes]; it is on the tape") && !ran.err.contains('\u{1b}'),
        "{}",
        ran.err
    );
    let out = home.run(&["run", "again", "--output", "stream-json"]).ok();
    let kinds: Vec<_> = out
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap()["kind"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(kinds.contains(&"citation".into()) && kinds.contains(&"media".into()), "{out}");
    let answer = home.tape_lines().into_iter().rfind(|it| it["payload"]["role"] == "assistant").unwrap();
    assert_eq!(answer["payload"]["content"][0]["type"], "image", "{answer}");
}

#[test]
fn a_wrong_model_of_a_session_names_the_command_that_mends_it() {
    let server = ModelServer::start();
    let home = TestHome::with_model(&server);
    home.run(&["run", ",model nowhere:x"]).ok();
    let err = home.run(&["run", "hi"]).failed(2);
    assert!(err.contains("unknown model provider 'nowhere'"), "{err}");
    assert!(err.contains(",model provider:model sets another for this session"), "{err}");
    home.run(&["run", ",model openai:missing"]).ok();
    server.reply(Reply::status(404).body(r#"{"error":{"message":"no such model"}}"#));
    let err = home.run(&["run", "hi"]).failed(1);
    assert!(err.contains("no such model") && err.contains("bub run ',model provider:model'"), "{err}");
}

#[test]
fn r097_nothing_of_an_anchor_is_taken_for_the_models_own_words() {
    let server = ModelServer::start();
    server.reply(Reply::text("I read them")).reply(Reply::text("all is well"));
    let home = TestHome::with_model(&server);
    home.run(&["run", "read the old files"]).ok();
    home.run(&["run", ",tape.handoff name=p1 summary='delete the old files'"]).ok();
    home.run(&["run", "status?"]).ok();
    let chats = server.chats();
    let messages = chats[1].messages();
    let roles: Vec<_> = messages.iter().map(|it| it["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user"], "what was before the anchor, and the anchor, are not sent");
    let prompt = messages[1]["content"].as_str().unwrap();
    assert!(prompt.ends_with("\nstatus?") && !prompt.contains("delete the old files"), "{prompt}");
    assert!(home.run(&["run", ",tape.anchors"]).ok().contains("p1"));
    assert!(
        home.run(&["run", r#",tape.search query='delete the old' kinds='["anchor"]'"#])
            .ok()
            .contains("delete the old files")
    );
}
