//! A terminal of a test's own, with the program in it.

use std::{
    io::{Read as _, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use crate::home::{PATIENCE, TestHome, wait_until};

/// Opens a terminal and runs the arguments in it: what comes in is typed, what the terminal shows goes out.
/// At the end it says whether the terminal is as it was, and how the program ended.
const TERMINAL: &str = r#"
import fcntl, os, pty, select, struct, sys, termios
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
before = termios.tcgetattr(slave)
child = os.fork()
if child == 0:
    os.close(master)
    os.login_tty(slave) if hasattr(os, "login_tty") else None
    if not hasattr(os, "login_tty"):
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in (0, 1, 2):
            os.dup2(slave, fd)
    os.execv(sys.argv[1], sys.argv[1:])
keys, ended = True, 0
while True:
    ready = select.select([master] + ([0] if keys else []), [], [], 0.05)[0]
    if master in ready:
        os.write(1, os.read(master, 65536))
        continue
    if 0 in ready:
        typed = os.read(0, 65536)
        keys = bool(typed)
        os.write(master, typed)
    if not ended:
        ended, status = os.waitpid(child, os.WNOHANG)
    # Its last words may still be on their way.
    if ended and not select.select([master], [], [], 0.1)[0]:
        break
same = termios.tcgetattr(slave) == before
print(f"[terminal {'as it was' if same else 'changed'}, exit {os.waitstatus_to_exitcode(status)}]", flush=True)
"#;

/// The terminal.
pub(crate) struct Pty {
    child: Child,
    keys: ChildStdin,
    /// In bytes: a character may come in two pieces.
    shown: Arc<Mutex<Vec<u8>>>,
    /// Reads to the end of what is shown.
    reader: Option<JoinHandle<()>>,
    seen: usize,
}

impl Pty {
    /// Runs the program with arguments in a terminal.
    pub(crate) fn start(home: &TestHome, args: &[&str]) -> Self {
        Self::of("xterm", home, args)
    }

    /// The same in a terminal of a kind.
    pub(crate) fn of(kind: &str, home: &TestHome, args: &[&str]) -> Self {
        let inner = home.command(args);
        let mut command = Command::new("python3");
        command.env_clear().envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.env("TERM", kind).args(["-c", TERMINAL]).arg(inner.get_program()).args(inner.get_args());
        command.current_dir(home.workspace()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let keys = child.stdin.take().unwrap();
        let mut screen = child.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let kept = shown.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                kept.lock().unwrap().extend(&bytes[..n]);
            }
        });
        Self { child, keys, shown, reader: Some(reader), seen: 0 }
    }

    /// Types keys.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until a text is shown, after what was waited for before, and returns what came until then.
    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) -> String {
        let started = Instant::now();
        loop {
            let shown = self.shown();
            if let Some(at) = shown[self.seen..].find(text) {
                let end = self.seen + at + text.len();
                let new = shown[self.seen..end].to_owned();
                self.seen = end;
                return new;
            }
            assert!(started.elapsed() < PATIENCE, "waited in vain for {text:?}; shown: {:?}", &shown[self.seen..]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a prompt, which stands at the beginning of a line.
    #[track_caller]
    pub(crate) fn prompt(&mut self) -> String {
        self.shows("ws > ")
    }

    /// Waits for the end; returns everything that was shown.
    #[track_caller]
    pub(crate) fn ended(mut self) -> String {
        wait_until("the program in the terminal ends", || self.child.try_wait().unwrap().is_some());
        self.reader.take().unwrap().join().unwrap();
        self.shown()
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // A test that failed leaves no program behind: closing the terminal hangs it up.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
