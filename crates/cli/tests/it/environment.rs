//! Tools in an environment that is reached by a command.

use std::fs;

use crate::home::TestHome;

#[test]
fn lines_run_where_the_setting_leads() {
    let home = TestHome::new();
    let there = home.workspace().parent().unwrap().join("there");
    fs::create_dir(&there).unwrap();
    home.config(&format!(
        "environment:\n  exec: [env, -C, {}, WHERE=there, sh, -c, 'exec \"$@\"', sh]\n",
        there.display()
    ));
    let out = home.run(&["run", ",bash 'pwd; echo $WHERE ${BUB_API_KEY:-hidden}'"]).ok();
    assert_eq!(out, format!("{}\nthere hidden\n", there.display()));
    home.run(&["run", ",fs.write path=a.txt content=there"]).ok();
    assert_eq!(fs::read_to_string(there.join("a.txt")).unwrap(), "there");
    assert_eq!(home.run(&["run", ",fs.read a.txt"]).ok(), "there\n");
    home.write("code.py", "import os\nprint(os.getcwd())\n");
    assert_eq!(home.run(&["code", "code.py"]).ok(), format!("{}\n", there.display()));
    let hooks = home.run(&["hooks"]).ok();
    assert!(hooks.contains("environment"), "{hooks}");
}

#[test]
fn a_command_that_leads_nowhere_is_an_error_with_the_next_step() {
    for (command, expected) in [
        (r#"["no-such-engine","exec","-i","box"]"#, "`no-such-engine exec -i box`: there is no such program"),
        (
            r#"["sh","-c","echo No such container: box >&2; exit 125"]"#,
            "it ended with code 125: No such container: box",
        ),
    ] {
        let home = TestHome::new().var("BUB_ENVIRONMENT_EXEC", command);
        let err = home.run(&["run", ",bash ls"]).failed(1);
        assert!(err.starts_with("error: bash: the environment cannot be reached by "), "{err}");
        assert!(err.contains(expected), "{err}");
        assert!(err.contains("; check that it runs, or change the setting environment.exec"), "{err}");
        assert!(home.run(&["run", ",tape.info"]).ok().starts_with("name: "));
    }
    for (variable, value, expected) in [
        ("BUB_ENVIRONMENT_EXEC", "docker exec -i box", "here as JSON such as [\"docker\", \"exec\", \"-i\", \"box\"]"),
        ("BUB_ENVIRONMENT_EXEC", "[1]", "environment.exec must be a list of texts: a program and its arguments"),
        ("BUB_ENVIRONMENT_EXEC", "[\"\"]", "is empty"),
        ("BUB_ENVIRONMENT_WORKSPACE", "here", "a workspace must be an absolute path"),
    ] {
        let home = TestHome::new().var(variable, value);
        let home = if variable.ends_with("EXEC") { home } else { home.var("BUB_ENVIRONMENT_EXEC", "[\"env\"]") };
        let err = home.run(&["run", ",bash ls"]);
        assert!(err.code != Some(0) && err.err.contains(expected), "{value}: {}", err.err);
    }
}
