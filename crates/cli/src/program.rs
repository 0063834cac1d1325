//! A program: bub's commands, and what plugins add to them.

use std::{fmt, process::ExitCode};

use bub::kernel::plugin::{Plugin, Subcommand};
use clap::{CommandFactory as _, FromArgMatches as _, Parser as _};

use crate::{
    args::{Args, Command, Globals},
    commands::{self, Call, call_of, command_of},
    error,
    output::note,
};

/// A program like `bub`, with plugins built in.
pub struct Program {
    name: &'static str,
    plugins: Vec<Box<dyn Plugin>>,
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A command of bub.
    Own(Args),
    /// A subcommand of a plugin.
    Tool {
        /// Options of every command.
        globals: Globals,
        /// The call.
        call: Call,
    },
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plugins: Vec<_> = self.plugins.iter().map(Plugin::name).collect();
        f.debug_struct("Program").field("name", &self.name).field("plugins", &plugins).finish()
    }
}

impl Program {
    /// A program of this name, as its help has it.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { name, plugins: Vec::new() }
    }

    /// Adds a plugin; a later one ranks higher.
    #[must_use]
    pub fn plugin(mut self, plugin: impl Plugin + 'static) -> Self {
        self.plugins.push(Box::new(plugin));
        self
    }

    /// Runs the program: reads the command line, does what it says, and picks the exit code.
    #[must_use]
    pub fn main(self) -> ExitCode {
        let asked = match self.parse() {
            Ok(asked) => asked,
            Err(err) => return error::usage(&err),
        };
        if matches!(&asked, Asked::Own(Args { command: Command::CodeWorker, .. })) {
            return bub::code::sandbox::worker_main();
        }
        // One thread: tools spend their time waiting for processes, files and the network, and what
        // computes long goes to the blocking pool. Starting workers would cost more than a command does.
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(err) => return error::report(&anyhow::Error::new(err).context("cannot start the async runtime")),
        };
        let done = runtime.block_on(commands::run(asked, self));
        // What still runs in the blocking pool (a read that hangs, say) must not keep the program alive.
        runtime.shutdown_background();
        match done {
            Ok(code) => code,
            Err(err) => error::report(&err),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn into_plugins(self) -> Vec<Box<dyn Plugin>> {
        self.plugins
    }

    /// The command line with the subcommands of plugins, and those.
    pub(crate) fn command(&self) -> (clap::Command, Vec<Subcommand>) {
        let mut command = Args::command().name(self.name);
        let mut added = Vec::new();
        for plugin in &self.plugins {
            for it in plugin.subcommands() {
                let is_word =
                    !it.name.is_empty() && !it.name.starts_with('-') && !it.name.contains(char::is_whitespace);
                if !is_word || it.name == "help" || command.find_subcommand(&it.name).is_some() {
                    let reason = if is_word { "there is one of that name" } else { "it has to be one word" };
                    note(&format!("plugin '{}': no subcommand '{}': {reason}", plugin.name(), it.name));
                    continue;
                }
                command = command.subcommand(command_of(&it));
                added.push(it);
            }
        }
        (command, added)
    }

    fn parse(&self) -> Result<Asked, clap::Error> {
        if self.plugins.is_empty() {
            return Args::try_parse().map(Asked::Own);
        }
        let (mut command, added) = self.command();
        let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let called = matches.subcommand().and_then(|(name, inner)| {
            let subcommand = added.iter().find(|it| it.name == name)?;
            Some(call_of(subcommand, inner))
        });
        match called {
            Some(call) => Ok(Asked::Tool { globals: Globals::from_arg_matches_mut(&mut matches)?, call }),
            None => Args::from_arg_matches_mut(&mut matches).map(Asked::Own).map_err(|err| err.format(&mut command)),
        }
    }
}
