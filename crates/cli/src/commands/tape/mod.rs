//! `bub tape`: what was recorded, for people.

mod anchors;
mod archive;
mod export;
mod fork;
mod info;
mod list;
mod markdown;
mod progress;
mod render;
mod reset;
mod search;
mod shelf;
mod show;
mod verify;
mod when;

use std::process::ExitCode;

use anyhow::Result;
use bub::Builder;

use crate::args::TapeCommand;
use shelf::Shelf;

/// Looks at tapes, copies or mends them. What only reads never waits for a session that is in use.
pub(crate) async fn run(command: TapeCommand, builder: Builder) -> Result<ExitCode> {
    let shelf = Shelf::new(builder.build()?);
    match command {
        TapeCommand::List(args) => list::run(&shelf, &args).await,
        TapeCommand::Show(args) => show::run(&shelf, &args).await,
        TapeCommand::Info { tape, json } => info::run(&shelf, &tape, json).await,
        TapeCommand::Search(args) => search::run(&shelf, &args).await,
        TapeCommand::Anchors { tape, json } => anchors::run(&shelf, &tape, json),
        TapeCommand::Export(args) => export::run(&shelf, &args),
        TapeCommand::Archive { tape, json } => archive::run(&shelf, &tape, json).await,
        TapeCommand::Reset(args) => reset::run(&shelf, &args).await,
        TapeCommand::Fork(args) => fork::run(&shelf, &args).await,
        TapeCommand::Verify(args) => verify::run(&shelf, &args).await,
    }
}
