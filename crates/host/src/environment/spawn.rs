//! Starting a process: which program, where, with which variables and pipes.

use std::{
    io::{self, Write as _},
    path::Path,
    process::Stdio,
    sync::OnceLock,
};

use bub_kernel::environment::{EnvPath, EnvironmentError, Output, Pipes, Program, SpawnRequest};
use process_wrap::tokio::{CommandWrap, ProcessSession};
use tokio::{net::unix::pipe, process::Command};

use super::{LocalOptions, descendants::Descendants, process::LocalProcess, quiet};

/// Shells for scripts, best first.
const SHELLS: [&str; 2] = ["bash", "sh"];

/// Scripts of more bytes are given to the shell as a file: the kernel takes no argument of 128 KiB.
const MAX_SCRIPT_ARGUMENT: usize = 100 * 1024;

/// The shell that was found first.
#[derive(Debug, Default)]
pub(super) struct ShellChoice(OnceLock<&'static str>);

/// Starts a process in a session of its own, which has no terminal.
pub(super) fn spawn(
    options: &LocalOptions,
    workspace: Option<&EnvPath>,
    shell: &ShellChoice,
    request: &SpawnRequest,
) -> Result<LocalProcess, EnvironmentError> {
    let cwd = request.cwd.as_ref().or(workspace);
    if let Some(cwd) = cwd {
        check_directory(cwd)?;
    }
    let start = |program: &str, args: &[&str]| start(options, cwd, request, program, args);
    match &request.program {
        Program::Argv(argv) => {
            let mut words = argv.iter().map(String::as_str);
            let program = words.next().unwrap_or_default();
            start(program, &words.collect::<Vec<_>>()).map_err(|err| EnvironmentError::io(&EnvPath::new(program), err))
        }
        Program::Shell(script) if script.len() > MAX_SCRIPT_ARGUMENT => {
            let file = script_file(script)?;
            let path = file.to_string_lossy().into_owned();
            let mut process = spawn_shell(options, shell, |program| start(program, &[&path]))?;
            process.keep(file);
            Ok(process)
        }
        Program::Shell(script) => spawn_shell(options, shell, |program| start(program, &["-c", script])),
    }
}

/// Starts the best shell that there is.
fn spawn_shell(
    options: &LocalOptions,
    choice: &ShellChoice,
    start: impl Fn(&str) -> io::Result<LocalProcess>,
) -> Result<LocalProcess, EnvironmentError> {
    for shell in choice.0.get().copied().into_iter().chain(SHELLS) {
        match start(shell) {
            Ok(process) => {
                choice.0.get_or_init(|| shell);
                return Ok(process);
            }
            // The directory was checked, so this is about the program.
            Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {}
            Err(err) => return Err(EnvironmentError::Io { path: shell.to_owned(), source: err }),
        }
    }
    let place = match &options.path {
        Some(path) => path.to_string_lossy().into_owned(),
        None => "the PATH".to_owned(),
    };
    Err(EnvironmentError::NoShell(format!("{} in {place}", SHELLS.join(" and "))))
}

fn start(
    options: &LocalOptions,
    cwd: Option<&EnvPath>,
    request: &SpawnRequest,
    program: &str,
    args: &[&str],
) -> io::Result<LocalProcess> {
    let mut command = Command::new(program);
    command.args(args);
    if let Some(cwd) = cwd {
        command.current_dir(cwd.as_str());
    }
    command.envs(&options.variables);
    for name in &options.hidden_variables {
        command.env_remove(name);
    }
    command.envs(quiet::VARIABLES.iter().copied());
    if let Some(path) = &options.path {
        command.env("PATH", path);
    }
    command.envs(&request.env);
    let mark = Descendants::mark();
    command.env(&mark, "1");
    command.stdin(if request.stdin { Stdio::piped() } else { Stdio::null() });
    let merged = match request.output {
        Output::Merged => {
            let (reader, writer) = io::pipe()?;
            command.stdout(writer.try_clone()?).stderr(writer);
            Some(pipe::Receiver::from_owned_fd(reader.into())?)
        }
        Output::Separate => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            None
        }
    };
    let mut command = CommandWrap::from(command);
    let mut child = command.wrap(ProcessSession).spawn()?;
    let stdin = child.stdin().take().map(|it| Box::new(it) as _);
    let pipes = match (merged, child.stdout().take()) {
        (Some(stdout), _) => Pipes { stdin, stdout: Box::new(stdout), stderr: None },
        (None, Some(stdout)) => {
            Pipes { stdin, stdout: Box::new(stdout), stderr: child.stderr().take().map(|it| Box::new(it) as _) }
        }
        (None, None) => Pipes { stdin, stdout: Box::new(tokio::io::empty()), stderr: None },
    };
    // The writing ends of the merged pipe are in the command: while it lives, there is no end of file.
    drop(command);
    LocalProcess::new(child, pipes, &mark)
}

/// An error unless a process can start in this directory.
fn check_directory(path: &EnvPath) -> Result<(), EnvironmentError> {
    let metadata = std::fs::metadata(path.as_str()).map_err(|err| EnvironmentError::io(path, err))?;
    if !metadata.is_dir() {
        let source = io::Error::from(io::ErrorKind::NotADirectory);
        return Err(EnvironmentError::Io { path: path.to_string(), source });
    }
    rustix::fs::access(Path::new(path.as_str()), rustix::fs::Access::EXEC_OK)
        .map_err(|err| EnvironmentError::io(path, err.into()))
}

/// Puts a script into a file that lives as long as its process.
fn script_file(script: &str) -> Result<tempfile::TempPath, EnvironmentError> {
    let make = || {
        let mut file = tempfile::Builder::new().prefix("bub-script-").suffix(".sh").tempfile()?;
        file.write_all(script.as_bytes())?;
        Ok(file.into_temp_path())
    };
    make().map_err(|source| EnvironmentError::Io { path: "a temporary file for the script".into(), source })
}
