//! `bub tape verify`.

use std::process::ExitCode;

use anyhow::Result;
use bub::{
    host::{Finding, Repaired, Verified, Verifier},
    kernel::{
        tape::{TapeName, TapeStore as _},
        text::thousands,
    },
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{progress::Progress, shelf::Shelf};
use crate::{args::VerifyArgs, output, terminal::safe::safe_line};

/// Looks for damage, mends it if asked to, and says what is left.
pub(super) async fn run(shelf: &Shelf, args: &VerifyArgs) -> Result<ExitCode> {
    let tapes = if args.all {
        let mut names = shelf.store().list().await?;
        names.extend(shelf.store().only_journaled()?);
        names
    } else {
        vec![shelf.find(&args.tape.session)?]
    };
    let verifier = shelf.store().verifier()?;
    let mut n_wrong = 0_u64;
    let mut progress = Progress::new("verifying");
    for (idx, name) in tapes.iter().enumerate() {
        progress.count(idx, tapes.len());
        let mut found = if args.all { verifier.verify(name, &mut |_, _| {})? } else { verified(&verifier, name)? };
        let mut repaired = Vec::new();
        let before = found.clone();
        if args.repair && found.n_mendable > 0 {
            (found, repaired) = repair(shelf, name).await?;
        }
        n_wrong += u64::from(!found.is_clean());
        if args.json || !before.findings.is_empty() {
            progress.clear();
        }
        if args.json {
            output::line(&as_json(name, &found, &repaired).to_string())?;
        } else {
            print(shelf, name, args, &before, &found, &repaired)?;
        }
    }
    progress.clear();
    if args.all && !args.json {
        let n_tapes = thousands(tapes.len() as u64);
        let tapes = if tapes.len() == 1 { "tape" } else { "tapes" };
        output::line(&match n_wrong {
            0 => format!("{n_tapes} {tapes}, nothing is wrong"),
            n => format!("{n_tapes} {tapes}, {} damaged", thousands(n)),
        })?;
    }
    Ok(if n_wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verified(verifier: &Verifier, name: &TapeName) -> Result<Verified> {
    let mut progress = Progress::new("verifying");
    Ok(verifier.verify(name, &mut |position, len| progress.at(position, len))?)
}

/// Merges what a dead process left, mends the files, and looks again.
async fn repair(shelf: &Shelf, name: &TapeName) -> Result<(Verified, Vec<(TapeName, Repaired)>)> {
    let _guard = shelf.hold(name).await?;
    let verifier = shelf.store().verifier()?;
    let found = verified(&verifier, name)?;
    if found.n_mendable == 0 {
        return Ok((found, Vec::new()));
    }
    let mut repaired = shelf.store().repair(name, &found, Timestamp::now())?;
    let mut after = verified(&verifier, name)?;
    if after.n_mendable > 0 {
        // Damage of a sidecar that only its own repair brought to light is on the tape after the second time.
        let again = shelf.store().repair(name, &after, Timestamp::now())?;
        repaired.extend(again.into_iter().filter(|it| it.1.is_changed()));
        after = verified(&verifier, name)?;
    }
    repaired.retain(|it| it.1.is_changed());
    Ok((after, repaired))
}

fn print(
    shelf: &Shelf,
    name: &TapeName,
    args: &VerifyArgs,
    before: &Verified,
    after: &Verified,
    repaired: &[(TapeName, Repaired)],
) -> Result<()> {
    if args.all && before.findings.is_empty() {
        return Ok(());
    }
    let label = if args.all { shelf.known_session(name).unwrap_or(name.as_str()) } else { &args.tape.session };
    let mut text = String::new();
    for finding in &before.findings {
        text.push_str(&finding_text(label, name, finding, args.repair));
    }
    if before.n_more > 0 {
        text.push_str(&format!("{label}: and {} more\n", thousands(before.n_more)));
    }
    for (_, it) in repaired {
        text.push_str(&format!("{label}: mended: {}\n", what_was_done(it)));
        if let Some(path) = &it.original {
            text.push_str(&format!("{label}: the file as it was: {}\n", path.display()));
        }
    }
    let left = after.n_errors;
    let entries = thousands(after.entries);
    let files = if after.files == 1 { "1 file".to_owned() } else { format!("{} files", after.files) };
    text.push_str(&match left {
        0 => format!("{label}: ok, {entries} entries in {files}\n"),
        1 => format!("{label}: 1 error, {entries} entries in {files}\n"),
        n => format!("{label}: {} errors, {entries} entries in {files}\n", thousands(n)),
    });
    output::out(&text)?;
    if !args.repair && after.n_mendable > 0 {
        output::note("bub tape verify --repair does what is said behind the arrows");
    }
    Ok(())
}

fn finding_text(label: &str, main: &TapeName, finding: &Finding, is_repair: bool) -> String {
    let file = finding.tape.as_str().strip_prefix(main.as_str()).and_then(|it| it.strip_prefix("__sidecar__"));
    let file = file.map(|it| format!(" sidecar {it}")).unwrap_or_default();
    let line = finding.line.map(|it| format!(" line {it}")).unwrap_or_default();
    let mark = if finding.fault.is_error() { "" } else { " (remark)" };
    let advice = if is_repair && finding.fault.is_mendable() {
        String::new()
    } else {
        format!("\n    → {}", finding.fault.advice())
    };
    format!("{label}:{file}{line}:{mark} {}{advice}\n", safe_line(&finding.fault.to_string()))
}

/// What a repair did, in words.
fn what_was_done(it: &Repaired) -> String {
    let counts = [
        (it.lines_dropped, "line taken out", "lines taken out"),
        (it.entries_found, "entry found inside of one", "entries found inside of one"),
        (it.entries_numbered, "entry numbered anew", "entries numbered anew"),
        (it.results_added, "result added", "results added"),
        (it.results_set_aside, "result set aside", "results set aside"),
        (it.anchors_added, "half of an anchor added", "halves of anchors added"),
        (it.losses_recorded, "loss recorded", "losses recorded"),
    ];
    let done = counts.iter().filter(|it| it.0 > 0).map(|(n, one, many)| {
        let words = if *n == 1 { one } else { many };
        format!("{} {words}", thousands(*n))
    });
    done.collect::<Vec<_>>().join(", ")
}

fn as_json(name: &TapeName, found: &Verified, repaired: &[(TapeName, Repaired)]) -> Value {
    let findings: Vec<_> = found
        .findings
        .iter()
        .map(|it| {
            json!({
                "tape": it.tape.as_str(), "line": it.line, "kind": it.fault.name(), "error": it.fault.is_error(),
                "mendable": it.fault.is_mendable(), "problem": it.fault.to_string(), "advice": it.fault.advice(),
            })
        })
        .collect();
    let repaired: Vec<_> = repaired
        .iter()
        .map(|(tape, it)| {
            json!({
                "tape": tape.as_str(), "original": it.original.as_ref().map(|it| it.display().to_string()),
                "lines_dropped": it.lines_dropped, "entries_found": it.entries_found,
                "entries_numbered": it.entries_numbered, "results_added": it.results_added,
                "results_set_aside": it.results_set_aside, "anchors_added": it.anchors_added,
                "losses_recorded": it.losses_recorded,
            })
        })
        .collect();
    json!({
        "tape": name.as_str(), "clean": found.is_clean(), "entries": found.entries, "files": found.files,
        "errors": found.n_errors, "findings": findings, "more_findings": found.n_more, "repaired": repaired,
    })
}
