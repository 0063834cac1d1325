//! GitHub Copilot: a code that is typed at GitHub.

use std::time::Duration;

use anyhow::Result;
use bub::{models::GithubLogin, settings::Settings};

use super::browser;
use crate::{
    args::CopilotArgs,
    output::{line, note},
    terminal::safe::safe_line,
};

pub(super) async fn log_in(args: &CopilotArgs, settings: &Settings) -> Result<()> {
    let login = GithubLogin::begin_at(args.github.as_deref()).await?;
    let limit = login.lifetime().min(Duration::from_secs(args.browser.timeout.into()));
    note(&format!(
        "Open this page in any browser and type the code there, within {} s:\n\n  {}\n  {}\n",
        limit.as_secs(),
        login.page(),
        login.user_code()
    ));
    if !args.browser.no_browser {
        browser::open(login.page());
    }
    let token = login.token().await?;
    settings.paths.make(&settings.paths.logins())?;
    token.keep(settings.paths.copilot_login())?;
    line("login: ok")?;
    if let Some(account) = token.account() {
        line(&format!("account_id: {}", safe_line(account)))?;
    }
    line("use it with BUB_MODEL=copilot:gpt-5 (any model of your plan), or `model: copilot:…` in the configuration")?;
    Ok(())
}
