//! OpenRouter: a browser allows it, and a key is kept.

use anyhow::Result;
use bub::{
    models::{KeyFile, LoginCode, LoginError, OpenRouterLogin},
    settings::{Origin, Settings},
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

use super::browser;
use crate::{
    args::BrowserArgs,
    output::{line, note},
    terminal::safe::safe_line,
};

/// The most that is read of what is pasted, in bytes.
const MAX_PASTED: u64 = 64 << 10;

pub(super) async fn log_in(args: &BrowserArgs, settings: &Settings) -> Result<()> {
    let address = settings.endpoint("openrouter").api_base.map(|it| it.url);
    let login = OpenRouterLogin::begin(address.as_deref()).await?;
    note(&format!(
        "Open this address in a browser, and allow it within {} s:\n\n  {}\n\n\
         If the browser is on another machine, it ends at an address that it can't open: paste that here.",
        args.timeout,
        login.url()
    ));
    if !args.no_browser {
        browser::open(login.url());
    }
    let code = tokio::select! {
        code = login.come_back() => code?,
        code = pasted(&login) => code?,
    };
    let key = login.exchange(code).await?;
    settings.paths.make(&settings.paths.logins())?;
    KeyFile::new(settings.paths.openrouter_login()).keep(&key)?;
    line("login: ok")?;
    if let Some(user) = key.user() {
        line(&format!("account_id: {}", safe_line(user)))?;
    }
    line(
        "use it with BUB_MODEL=openrouter:openrouter/free (or any other model), or `model: openrouter:…` in the configuration",
    )?;
    match settings.endpoint("openrouter").api_key.map(|it| it.origin) {
        None | Some(Origin::Login { .. }) => {}
        Some(other) => note(&format!("the key from {other} is used in its place")),
    }
    Ok(())
}

/// Waits until a code is typed. Where nothing can be typed, this does not end.
async fn pasted(login: &OpenRouterLogin) -> Result<LoginCode, LoginError> {
    let mut lines = BufReader::new(tokio::io::stdin().take(MAX_PASTED)).lines();
    while let Ok(Some(text)) = lines.next_line().await {
        match login.pasted(&text) {
            Err(err @ (LoginError::NoCode | LoginError::Foreign)) if !text.trim().is_empty() => note(&err.to_string()),
            Err(LoginError::NoCode) => {}
            done => return done,
        }
    }
    std::future::pending().await
}
