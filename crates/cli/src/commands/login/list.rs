//! What can be logged in to, and whether somebody is.

use std::process::ExitCode;

use anyhow::Result;
use bub::{
    models::LoginState,
    settings::{Login, Settings},
};
use jiff::Timestamp;
use serde_json::json;

use crate::{output::line, terminal::safe::safe_line};

pub(super) fn run(settings: &Settings, json: bool) -> Result<ExitCode> {
    let logins = settings.logins();
    let width = logins.iter().map(|it| it.name.len()).max().unwrap_or_default();
    for login in &logins {
        line(&if json { row_json(login) } else { format!("{:width$}  {}", login.name, safe_line(&row(login))) })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(login: &Login) -> String {
    let mut text = match &login.state {
        LoginState::Absent if login.name == "copilot" => {
            "not logged in, so the token of `gh` is used; bub login copilot".to_owned()
        }
        LoginState::Absent => format!("not logged in; bub login {}", login.name),
        LoginState::Broken(problem) => format!("of no use: {problem}"),
        LoginState::Present { account, until, renews } => {
            let account = account.as_ref().map(|it| format!(" as {it}")).unwrap_or_default();
            let until = match (until, renews) {
                (Some(until), false) if *until <= Timestamp::now() => {
                    format!(", but only until {until:.0}; bub login {}", login.name)
                }
                (Some(until), true) => format!(", until {until:.0}, then renewed"),
                (Some(until), false) => format!(", until {until:.0}"),
                (None, _) => String::new(),
            };
            format!("logged in{account}{until}")
        }
    };
    if let Some(key) = &login.key {
        text.push_str(&format!(" (the key from {} counts more)", key.origin));
    }
    text
}

fn row_json(login: &Login) -> String {
    let (state, account, until, renews, problem) = match &login.state {
        LoginState::Absent => ("absent", None, None, false, None),
        LoginState::Broken(problem) => ("broken", None, None, false, Some(problem)),
        LoginState::Present { account, until, renews } => ("present", account.as_ref(), until.as_ref(), *renews, None),
    };
    json!({
        "name": login.name, "state": state, "account": account, "until": until.map(ToString::to_string),
        "renews": renews, "problem": problem, "file": login.file.display().to_string(),
        "key": login.key.as_ref().map(|it| it.origin.to_string()),
    })
    .to_string()
}
