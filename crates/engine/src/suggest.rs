//! What to say about tools that do not exist.

use bub_kernel::similar::close_matches;

/// What the model reads instead of a result when it calls a tool that it was not offered.
pub(crate) fn guidance(name: &str, offered: &[String], deferred: &[String], code: &[String]) -> String {
    let has = |alias: &str| offered.iter().any(|it| it == alias);
    if has("tool_describe") && deferred.iter().any(|it| it == name) {
        return format!("Tool `{name}` is not loaded. Call `tool_describe` with its name first.");
    }
    if code.iter().any(|it| it == name) {
        return format!("Tool `{name}` is called from code here: pass `await tools.{name}(...)` to `run_code`.");
    }
    let mut matches = close_matches(name, offered.iter().chain(code).map(String::as_str));
    if matches.is_empty() {
        // `functions.bash` and `BASH`: names with a prefix or in a case that models know from elsewhere.
        let bare = name.rsplit(['.', ':', '/']).next().unwrap_or(name).to_lowercase();
        matches = close_matches(&bare, offered.iter().chain(code).map(String::as_str));
    }
    if !matches.is_empty() {
        let lines: String = matches.iter().map(|it| format!("\n- {it}")).collect();
        return format!("Tool `{name}` does not exist. Did you mean one of the following?{lines}");
    }
    if has("skill") {
        return format!("Tool `{name}` does not exist. Invoke the `skill` tool to list available skills.");
    }
    format!("Tool `{name}` does not exist. No similar tool is available.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["bash", "bash_output", "fs_read", "fs_write", "fs_edit", "tape_info", "tape_search", "web_fetch"]
            .map(str::to_owned)
            .to_vec()
    }

    #[test]
    fn guidance_tells_what_to_do_next() {
        let offered = names();
        assert_eq!(
            guidance("fsread", &offered, &[], &[]),
            "Tool `fsread` does not exist. Did you mean one of the following?\n- fs_read\n- fs_edit"
        );
        for (name, meant) in [("functions.bash", "bash"), ("BASH", "bash"), ("default_api:fs_read", "fs_read")] {
            let says = guidance(name, &offered, &[], &[]);
            assert!(says.contains(&format!("Did you mean one of the following?\n- {meant}")), "{says}");
        }
        assert_eq!(guidance("zzz", &offered, &[], &[]), "Tool `zzz` does not exist. No similar tool is available.");
        let with = |extra: &str| offered.iter().cloned().chain([extra.to_owned()]).collect::<Vec<_>>();
        assert_eq!(
            guidance("zzz", &with("skill"), &[], &[]),
            "Tool `zzz` does not exist. Invoke the `skill` tool to list available skills."
        );
        assert_eq!(
            guidance("mcp_x", &with("tool_describe"), &["mcp_x".into()], &[]),
            "Tool `mcp_x` is not loaded. Call `tool_describe` with its name first."
        );
        let code = ["say_hello".to_owned()];
        assert_eq!(
            guidance("sayhello", &offered, &[], &code),
            "Tool `sayhello` does not exist. Did you mean one of the following?\n- say_hello"
        );
        assert_eq!(
            guidance("say_hello", &offered, &[], &code),
            "Tool `say_hello` is called from code here: pass `await tools.say_hello(...)` to `run_code`."
        );
    }
}
