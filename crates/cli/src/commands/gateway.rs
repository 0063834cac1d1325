//! `bub gateway`: answers what channels bring.

use std::process::ExitCode;

use anyhow::Result;
use bub::{Builder, engine::ChannelChoice};
use tokio_util::sync::CancellationToken;

use crate::{args::GatewayArgs, error::UsageError, interrupt::Interrupts, output};

/// Listens until it is stopped.
pub(crate) async fn run(args: &GatewayArgs, builder: Builder) -> Result<ExitCode> {
    let app = builder.build()?;
    let ChannelChoice { channels, unknown, disabled, .. } = app.enabled_channels();
    for name in &disabled {
        output::note(&format!("channel '{name}' is not set up, so nothing listens on it"));
    }
    if let Some(name) = unknown.first() {
        let known: Vec<_> = app.channels().iter().map(|it| it.name()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let problem = format!("there is no channel '{name}'; there are: {known}");
        if !args.enable_channel.is_empty() {
            return Err(UsageError(problem).into());
        }
        output::note(&problem);
    }
    if channels.is_empty() {
        output::note(
            "error: no channel is enabled, so there is nothing to listen on\n\
             hint: channels come with plugins, and the setting enabled_channels chooses among them; \
             `bub chat` talks in this terminal",
        );
        app.close().await;
        return Ok(ExitCode::FAILURE);
    }
    let names: Vec<_> = channels.iter().map(|it| it.name().to_owned()).collect();
    output::note(&format!("listening on {} (Ctrl-C to stop)", names.join(", ")));
    let mut interrupts = Interrupts::listen();
    let (gateway, cancel) = (app.gateway(channels), CancellationToken::new());
    let mut listening = std::pin::pin!(gateway.run(cancel.clone()));
    let ended = tokio::select! {
        ended = &mut listening => ended,
        () = interrupts.next() => {
            output::note("stopping … (Ctrl-C again to leave at once)");
            cancel.cancel();
            tokio::select! {
                ended = &mut listening => ended,
                () = interrupts.next() => return Err(bub::kernel::turn::TurnError::Cancelled.into()),
            }
        }
    };
    tokio::select! {
        () = app.close() => (),
        () = interrupts.next() => (),
    }
    ended?;
    Ok(ExitCode::SUCCESS)
}
