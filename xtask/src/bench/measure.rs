//! Running programs under measurement.

use std::{
    env, fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(120);
/// How often is looked whether a run has ended; its end is timed by `measured`, not by this.
const POLL: Duration = Duration::from_millis(3);
/// Lines of the file that read tools are given.
const FILE_LINES: usize = 40;

/// What one run took.
#[derive(Clone, Debug)]
pub(super) struct Used {
    /// Just before it was started.
    pub(super) start: SystemTime,
    /// When it had ended.
    pub(super) end: SystemTime,
    /// Processor time, of it and of what it waited for.
    pub(super) cpu: Duration,
    /// Peak memory in bytes, of the largest of it and what it waited for.
    pub(super) peak: u64,
    /// What it printed.
    pub(super) output: String,
}

impl Used {
    pub(super) fn wall(&self) -> Duration {
        between(self.start, self.end)
    }
}

/// From one moment to a later one; zero when the clock was set back between them.
pub(super) fn between(from: SystemTime, to: SystemTime) -> Duration {
    to.duration_since(from).unwrap_or_default()
}

/// Runs programs in a home and a workspace of their own.
#[derive(Debug)]
pub(super) struct Runner {
    programs: PathBuf,
    bub: PathBuf,
    folder: TempDir,
    path: std::ffi::OsString,
}

impl Runner {
    /// A runner of the programs that were built into `programs`.
    pub(super) fn new(programs: &Path, bub: Option<PathBuf>) -> Result<Self> {
        let folder = tempfile::tempdir().context("can't make a temporary folder")?;
        fs::create_dir(folder.path().join("workspace"))?;
        fs::create_dir(folder.path().join("home"))?;
        let text: String =
            (0..FILE_LINES).map(|it| format!("Line {it} of a file that is read again and again.\n")).collect();
        fs::write(folder.path().join("workspace/README.md"), text)?;
        let bub = match bub {
            Some(path) => fs::canonicalize(&path).with_context(|| format!("no binary at {}", path.display()))?,
            None => programs.join("bub"),
        };
        #[expect(clippy::disallowed_methods, reason = "programs are measured with this PATH and nothing else")]
        let path = env::var_os("PATH").unwrap_or_default();
        Ok(Self { programs: programs.to_owned(), bub, folder, path })
    }

    /// The binary that is measured.
    pub(super) fn bub(&self) -> &Path {
        &self.bub
    }

    /// One of our own small programs.
    pub(super) fn own(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// Where the binary keeps its tapes.
    pub(super) fn tapes(&self) -> PathBuf {
        self.folder.path().join("home/.bub/tapes")
    }

    /// What the runs' folder is on, for the report's head.
    pub(super) fn folder_note(&self) -> String {
        format!("runs in {}", self.folder.path().parent().unwrap_or(Path::new("/")).display())
    }

    /// Runs a program to its end with these variables, `PATH`, a home and nothing else.
    pub(super) fn run(&self, program: &Path, args: &[&str], variables: &[(&str, &str)]) -> Result<Used> {
        let (report, output) = (self.folder.path().join("report"), self.folder.path().join("output"));
        let mut command = Command::new(self.own("measured"));
        command
            .args([&report, &output])
            .arg(program)
            .args(args)
            .current_dir(self.folder.path().join("workspace"))
            .env_clear()
            .env("PATH", &self.path)
            .env("LANG", "C.UTF-8")
            .env("HOME", self.folder.path().join("home"))
            .env("BUB_HOME", self.folder.path().join("home/.bub"))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .process_group(0);
        let mut child = command.spawn().context("can't start the measuring program")?;
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    // It fails only when the group has just ended by itself.
                    kill_process_group(group, Signal::KILL).ok();
                }
                child.wait()?;
                bail!("{} {args:?} did not end within {LIMIT:?}", program.display());
            }
            thread::sleep(POLL);
        };
        let printed = fs::read(&output).map(|it| String::from_utf8_lossy(&it).into_owned()).unwrap_or_default();
        ensure!(status.success(), "{} {args:?} failed ({status}):\n{printed}", program.display());
        parse(&fs::read_to_string(&report)?, printed).context("the measuring program's report makes no sense")
    }
}

fn parse(report: &str, output: String) -> Option<Used> {
    let numbers: Vec<u64> = report.split(' ').map(|it| it.parse().ok()).collect::<Option<_>>()?;
    let [start, end, cpu, peak] = *numbers else { return None };
    let moment = |nanos| UNIX_EPOCH + Duration::from_nanos(nanos);
    Some(Used { start: moment(start), end: moment(end), cpu: Duration::from_micros(cpu), peak, output })
}
