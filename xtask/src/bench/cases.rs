//! What is measured, and how good it has to be.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    measure::{Runner, Used, between},
    report::{Bar, Row, Spread},
    script::{Kind, Script},
    server::{Record, Server},
};

/// Runs of each kind that are not counted.
const WARM_UP: usize = 2;
/// Tool calls of a measured turn.
const STEPS: usize = 50;
/// How long the server may take to write down its last reply.
const LOG_WAIT: Duration = Duration::from_secs(1);
/// Text deltas of a measured answer.
const DELTAS: usize = 20_000;

/// A start and an exit: at most this many times a program that only says hello.
const START: Bar = Bar::Times(3.0);
/// A step with the shell tool: at most the floor's and this many milliseconds.
const SHELL_STEP: Bar = Bar::Plus(1.0);
/// A step with the read tool, in milliseconds.
const READ_STEP: Bar = Bar::Most(1.0);
/// A long answer: at most this many times the floor's.
const STREAM: Bar = Bar::Times(4.0);
/// Peak memory of a turn in MiB.
const MEMORY: Bar = Bar::Most(25.0);
/// Subagents that one answer starts at once.
const SUBAGENTS: usize = 100;
/// Peak memory of a turn with so many subagents in MiB.
const SUBAGENTS_MEMORY: Bar = Bar::Most(100.0);

/// Starts that need no model.
pub(super) fn startup(runner: &Runner, runs: usize) -> Result<Vec<Row>> {
    let hello = runner.own("hello_floor");
    let cases: [(&str, &Path, &[&str]); 3] = [
        ("hello", &hello, &[]),
        ("`bub --version`", runner.bub(), &["--version"]),
        ("`bub run ',help'`", runner.bub(), &["run", ",help"]),
    ];
    let mut figures = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..WARM_UP + runs {
        for ((_, program, args), figures) in cases.iter().zip(&mut figures) {
            let used = runner.run(program, args, &[])?;
            if round >= WARM_UP {
                figures.push(millis(used.wall()));
            }
        }
    }
    let [floor, ours @ ..] = figures.map(Spread::of);
    Ok(cases
        .iter()
        .skip(1)
        .zip(ours)
        .map(|((name, ..), ours)| Row::new(format!("{name}, start to exit"), "ms", Some(floor), ours, START))
        .collect())
}

/// Turns of many tool calls.
pub(super) fn steps(runner: &Runner, runs: usize, want_steps: bool, want_memory: bool) -> Result<Vec<Row>> {
    let shell = turns(runner, runs, &format!("n={STEPS},tool=shell"), STEPS + 1)?;
    let mut rows = Vec::new();
    let row = |what: &str, unit, turns: &Turns, figure: fn(&Turn) -> f64, bar| {
        Row::new(what, unit, Some(turns.floor(figure)), turns.ours(figure), bar)
    };
    if want_steps {
        let read = turns(runner, runs, &format!("n={STEPS},tool=read"), STEPS + 1)?;
        rows.push(row("client time of a step, shell tool", "ms", &shell, Turn::step, SHELL_STEP));
        rows.push(row("client time of a step, read tool", "ms", &read, Turn::step, READ_STEP));
        rows.push(row("start to first request", "ms", &shell, Turn::to_first_request, Bar::None));
        rows.push(row("turn of 50 shell calls, wall", "ms", &shell, Turn::wall, Bar::None));
        rows.push(row("turn of 50 shell calls, processor", "ms", &shell, Turn::cpu, Bar::None));
    }
    if want_memory {
        rows.push(row("turn of 50 shell calls, peak memory", "MiB", &shell, Turn::peak, MEMORY));
    }
    Ok(rows)
}

/// A long answer.
pub(super) fn stream(runner: &Runner, runs: usize) -> Result<Vec<Row>> {
    let turns = turns(runner, runs, &format!("n=0,deltas={DELTAS}"), 1)?;
    let what = "20,000 text deltas, first byte to exit";
    Ok(vec![
        Row::new(what, "ms", Some(turns.floor(Turn::answer)), turns.ours(Turn::answer), STREAM),
        Row::new(
            "20,000 text deltas, peak memory",
            "MiB",
            Some(turns.floor(Turn::peak)),
            turns.ours(Turn::peak),
            Bar::None,
        ),
    ])
}

/// Many subagents at once, each with a shell call and an answer.
pub(super) fn subagents(runner: &Runner, runs: usize) -> Result<Vec<Row>> {
    let server = Server::start().context("can't start the scripted model")?;
    let prompt = format!("bench:n=1,par={SUBAGENTS},tool=subagent please ask them");
    let mut turns = Vec::new();
    for round in 0..1 + runs {
        let turn = ours(runner, &server, &format!("bench-subagents-{round}"), &prompt, 2 + 2 * SUBAGENTS)?;
        if round > 0 {
            turns.push(turn);
        }
    }
    let of = |figure: fn(&Turn) -> f64| Spread::of(turns.iter().map(figure));
    Ok(vec![
        Row::new("100 parallel subagents, peak memory", "MiB", None, of(Turn::peak), SUBAGENTS_MEMORY),
        Row::new("100 parallel subagents, wall", "ms", None, of(Turn::wall), Bar::None),
    ])
}

/// One turn, as the server and the system saw it.
#[derive(Debug)]
struct Turn {
    used: Used,
    log: Vec<Record>,
}

impl Turn {
    /// From the last byte of a reply to the whole of the next request: the median of the turn, in milliseconds.
    fn step(&self) -> f64 {
        let gaps =
            self.log.iter().zip(self.log.iter().skip(1)).map(|(one, next)| millis(between(one.sent, next.received)));
        Spread::of(gaps).median()
    }

    fn to_first_request(&self) -> f64 {
        self.log.first().map_or(0.0, |it| millis(between(self.used.start, it.received)))
    }

    /// From the first byte of the last reply to the exit: most of a long answer fits into the system's buffers.
    fn answer(&self) -> f64 {
        self.log.last().map_or(0.0, |it| millis(between(it.ready, self.used.end)))
    }

    fn wall(&self) -> f64 {
        millis(self.used.wall())
    }

    fn cpu(&self) -> f64 {
        millis(self.used.cpu)
    }

    fn peak(&self) -> f64 {
        self.used.peak as f64 / f64::from(1 << 20)
    }
}

#[derive(Debug, Default)]
struct Turns {
    floor: Vec<Turn>,
    ours: Vec<Turn>,
}

impl Turns {
    fn floor(&self, figure: fn(&Turn) -> f64) -> Spread {
        Spread::of(self.floor.iter().map(figure))
    }

    fn ours(&self, figure: fn(&Turn) -> f64) -> Spread {
        Spread::of(self.ours.iter().map(figure))
    }
}

/// Runs one script with the bare client and with the product, by turns.
fn turns(runner: &Runner, runs: usize, script: &str, requests: usize) -> Result<Turns> {
    let server = Server::start().context("can't start the scripted model")?;
    let address = server.address().to_string();
    let prompt = format!("bench:{script} please run the steps");
    let client = runner.own("floor_client");
    let mut turns = Turns::default();
    for round in 0..WARM_UP + runs {
        let floor = runner.run(&client, &[&address, &prompt], &[])?;
        let floor = Turn { used: floor, log: checked(&server, &prompt, requests, "the bare client")? };
        let ours = ours(runner, &server, &format!("bench-{round}"), &prompt, requests)?;
        for turn in [&floor, &ours] {
            let last =
                Script::in_prompt(&prompt).and_then(|it| super::script::words(it.deltas).last()).unwrap_or_default();
            ensure!(
                turn.used.output.contains(last.trim_end()),
                "the answer is not in the output:\n{}",
                turn.used.output
            );
        }
        if round >= WARM_UP {
            turns.floor.push(floor);
            turns.ours.push(ours);
        }
    }
    Ok(turns)
}

/// One turn of the product.
fn ours(runner: &Runner, server: &Server, session: &str, prompt: &str, requests: usize) -> Result<Turn> {
    let base = format!("http://{}/v1", server.address());
    let variables = [("BUB_MODEL", "openai:mock"), ("BUB_API_KEY", "x"), ("BUB_API_BASE", base.as_str())];
    let used = runner.run(runner.bub(), &["run", "--session-id", session, prompt], &variables)?;
    Ok(Turn { used, log: checked(server, prompt, requests, "bub")? })
}

/// The server's log of one turn, if the turn went by the script.
fn checked(server: &Server, prompt: &str, requests: usize, who: &str) -> Result<Vec<Record>> {
    // A client may have read the last byte, and ended, before the server has written down that it was sent.
    let deadline = Instant::now() + LOG_WAIT;
    let mut log = Vec::new();
    loop {
        log.extend(server.take_log().into_iter().filter(|it| it.kind.is_some() && it.kind != Some(Kind::Side)));
        // Two connections may write down what they sent in another order.
        log.sort_by_key(|it: &Record| it.received);
        let is_done = log.len() >= requests && log.last().is_some_and(|it| it.kind == Some(Kind::Final));
        if is_done || Instant::now() > deadline {
            ensure!(log.len() == requests && is_done, "{who} asked {} times, not {requests}, for: {prompt}", log.len());
            return Ok(log);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
