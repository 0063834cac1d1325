//! Which Python each runner speaks: measured, written to the reference, and compared with what the model is told.

use std::{fmt::Write, path::PathBuf};

use bub_code::sandbox::limits_text;

use crate::kit::{PATIENCE, Subject};

/// Sections (`## name`) of features: `#--- name {what limits_text says when it is missing} (Python that has it)`,
/// the code, and `#=> ` before each line that it prints.
const FEATURES: &str = include_str!("features.txt");
const HEAD: &str = "# Python in code mode\n\n\
    What the code of `run_code` may use, by the runner that runs it. This page is written by a test that runs each \
    feature on both.\n\n\
    - `process`: a Python process on the host. It has what that Python has; the number is the version that a feature \
    needs when 3.9 is not enough.\n\
    - `sandbox`: the interpreter inside bub. An error is what the code gets.\n";

struct Feature {
    section: String,
    name: String,
    /// What the text for the model must say if the sandbox lacks it.
    told: Option<String>,
    /// The minor version of Python 3 that has it.
    since: u32,
    code: String,
    prints: String,
}

fn features() -> Vec<Feature> {
    let mut found: Vec<Feature> = Vec::new();
    let mut section = String::new();
    for line in FEATURES.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            name.clone_into(&mut section);
        } else if let Some(head) = line.strip_prefix("#--- ") {
            let (head, since) = match head.rsplit_once(" (3.") {
                Some((head, minor)) => (head, minor.trim_end_matches(')').parse().unwrap()),
                None => (head, 9),
            };
            let (name, told) = match head.split_once(" {") {
                Some((name, told)) => (name, Some(told.trim_end_matches('}').to_owned())),
                None => (head, None),
            };
            let (name, section) = (name.to_owned(), section.clone());
            found.push(Feature { section, name, told, since, code: String::new(), prints: String::new() });
        } else if let Some(printed) = line.strip_prefix("#=> ") {
            writeln!(found.last_mut().unwrap().prints, "{printed}").unwrap();
        } else {
            writeln!(found.last_mut().unwrap().code, "{line}").unwrap();
        }
    }
    found
}

/// What is in the way of a feature, or nothing.
async fn obstacle(subject: &Subject, feature: &Feature) -> Option<String> {
    let outcome = subject.run_for(&feature.code, PATIENCE).await;
    let failure = outcome.failure();
    if !failure.is_empty() {
        return failure.lines().next().map(str::to_owned);
    }
    (outcome.output != feature.prints).then(|| format!("prints `{}`", outcome.output.trim().replace('\n', " ")))
}

async fn python_minor(process: &Subject) -> u32 {
    process.run("import sys\nprint(sys.version_info[1])").await.output.trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn features_of_both_runners_are_those_of_the_reference_and_of_the_text() {
    let (process, sandbox) = (crate::process::subject(), crate::sandbox::subject());
    let minor = python_minor(&process).await;
    let (mut page, mut section, mut problems) = (HEAD.to_owned(), String::new(), Vec::new());
    let features = features();
    assert!(features.len() >= 100, "{}", features.len());
    for feature in &features {
        if section != feature.section {
            section.clone_from(&feature.section);
            write!(page, "\n## {section}\n\n| Feature | process | sandbox |\n| --- | --- | --- |\n").unwrap();
        }
        if minor >= feature.since
            && let Some(obstacle) = obstacle(&process, feature).await
        {
            problems.push(format!("{} in a process: {obstacle}", feature.name));
        }
        let obstacle = obstacle(&sandbox, feature).await;
        let is_told = feature.told.as_ref().map(|told| limits_text().contains(told.as_str()));
        match (&obstacle, is_told) {
            (Some(obstacle), None | Some(false)) => {
                problems.push(format!("{} is missing and not told: {obstacle}", feature.name));
            }
            (None, Some(_)) => problems.push(format!("{} is there, and marked as missing", feature.name)),
            _ => {}
        }
        let process = if feature.since > 9 { format!("3.{}", feature.since) } else { "yes".to_owned() };
        let sandbox = obstacle.map_or("yes".to_owned(), |obstacle| format!("no: {}", cell(&obstacle)));
        writeln!(page, "| {} | {process} | {sandbox} |", feature.name.replace('|', "\\|")).unwrap();
    }
    assert_eq!(problems, Vec::<String>::new(), "{problems:#?}");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/code-features.md");
    expect_test::expect_file![path].assert_eq(&page);
}

/// Text for a cell of a table.
fn cell(text: &str) -> String {
    let hint = text.find(" (this sandbox").or_else(|| text.find(" (a call of")).unwrap_or(text.len());
    text[..hint].replace('|', "\\|")
}

#[test]
fn text_for_the_model_is_short_and_whole() {
    let text = limits_text();
    assert!(text.len() < 2_500 && text.ends_with('.') && !text.contains("  "), "{} bytes", text.len());
}
