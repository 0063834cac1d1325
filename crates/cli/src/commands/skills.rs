//! `bub skills`: what there is, what is wrong with it, and more of it.

use std::{
    path::Path,
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use bub::{
    Builder,
    kernel::turn::TurnError,
    skills::{self, Catalog, InstallError, Skill, Skills, Source},
};
use serde_json::json;
use tokio::{io::AsyncReadExt as _, process::Command};

use crate::{
    args::{InstallArgs, SkillsCommand},
    error::UsageError,
    interrupt::Interrupts,
    output,
};

/// How long git may take to fetch a repository.
const GIT_LIMIT: Duration = Duration::from_secs(300);
/// The most that is repeated of what git says when it fails, in bytes.
const MAX_GIT_WORDS: u64 = 4_000;
/// Where skills are kept in a workspace and in a home folder.
const FOLDER: &str = ".agents/skills";

/// Does what the command line asks for. `into_workspace` tells that the workspace was named.
pub(crate) async fn run(command: SkillsCommand, builder: Builder, into_workspace: bool) -> Result<ExitCode> {
    let target = if into_workspace {
        Some(builder.workspace().join(FOLDER))
    } else {
        builder.settings().paths.user_home().map(|it| it.join(FOLDER))
    };
    let app = builder.build()?;
    let skills = app.skills();
    match command {
        SkillsCommand::List { all, json } => list(&skills.find(), all, json),
        SkillsCommand::Show { name } => show(skills, &name),
        SkillsCommand::Check { path: None } => check(&skills.find()),
        SkillsCommand::Check { path: Some(path) } => check_folder(&path),
        SkillsCommand::Install(args) => {
            let target = target.context("your home folder is not known; name a workspace with --workspace")?;
            install(&args, skills, &target).await
        }
    }
}

fn list(catalog: &Catalog, all: bool, json: bool) -> Result<ExitCode> {
    let mut shown: Vec<(&Skill, bool)> = catalog.skills.iter().map(|it| (it, false)).collect();
    if all {
        shown.extend(catalog.shadowed.iter().map(|it| (it, true)));
        shown.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    }
    let mut text = String::new();
    if json {
        for (it, shadowed) in shown {
            let value = json!({
                "name": it.name, "description": it.description, "source": it.source.to_string(),
                "location": it.file, "shadowed": shadowed, "warnings": it.warnings,
            });
            text.push_str(&format!("{value}\n"));
        }
        for it in &catalog.rejected {
            text.push_str(&format!("{}\n", json!({"name": it.name, "location": it.file, "error": it.reason})));
        }
    } else {
        let width = shown.iter().map(|(it, _)| it.name.len()).max().unwrap_or_default();
        for (it, shadowed) in &shown {
            let mark = if *shadowed { " (not used: another one of that name ranks higher)" } else { "" };
            text.push_str(&format!("{:width$}  {:10}  {}{mark}\n", it.name, it.source, it.description));
        }
        if shown.is_empty() {
            text.push_str("(no skills)\n");
        }
        if !catalog.rejected.is_empty() {
            text.push_str("\nnot loaded:\n");
            for it in &catalog.rejected {
                text.push_str(&format!("  {}: {}\n", it.file.display(), it.reason));
            }
        }
    }
    output::out(&text)?;
    for it in &catalog.warnings {
        output::note(&format!("note: {it}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn show(skills: &Skills, name: &str) -> Result<ExitCode> {
    let catalog = skills.find();
    let Some(skill) = catalog.find(name) else {
        let wanted = name.trim().to_lowercase();
        let broken = catalog.rejected.iter().find(|it| it.name.to_lowercase() == wanted);
        return Err(match broken {
            Some(it) => anyhow!("skill '{name}' was not loaded: {}: {}", it.file.display(), it.reason),
            None => anyhow!("no such skill: '{name}'; `bub skills list` lists those that there are"),
        });
    };
    let text = skills.read(skill).map_err(|reason| anyhow!("{}: {reason}", skill.file.display()))?;
    let body = if text.body.is_empty() { "(no content)" } else { &text.body };
    output::line(&format!("Location: {}\n---\n{body}", text.location))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a line for each skill, and fails when one is broken.
fn check(catalog: &Catalog) -> Result<ExitCode> {
    let mut text = String::new();
    for it in &catalog.skills {
        report(&mut text, it);
    }
    for it in &catalog.shadowed {
        let by = catalog.find(&it.name).map(|it| it.file.display().to_string()).unwrap_or_default();
        text.push_str(&format!("warning  {}: not used, because {by} ranks higher\n", it.file.display()));
    }
    for it in &catalog.warnings {
        text.push_str(&format!("warning  {it}\n"));
    }
    for it in &catalog.rejected {
        text.push_str(&format!("broken   {}: {}\n", it.file.display(), it.reason));
    }
    output::out(&text)?;
    Ok(if catalog.rejected.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(text: &mut String, skill: &Skill) {
    let file = skill.file.display();
    match skill.warnings.as_slice() {
        [] => text.push_str(&format!("ok       {file}\n")),
        warnings => text.push_str(&format!("warning  {file}: {}\n", warnings.join("; "))),
    }
}

fn check_folder(path: &Path) -> Result<ExitCode> {
    let path = path.canonicalize().with_context(|| path.display().to_string())?;
    let mut text = String::new();
    let mut is_broken = false;
    let mut look = |folder: &Path| {
        let name = folder.file_name().map(|it| it.to_string_lossy().into_owned());
        match skills::inspect(folder, name.as_deref(), Source::Project) {
            Ok(skill) => report(&mut text, &skill),
            Err(reason) => {
                is_broken = true;
                text.push_str(&format!("broken   {}: {reason}\n", folder.join("SKILL.md").display()));
            }
        }
    };
    let folders = skills::skill_folders(&path).with_context(|| path.display().to_string())?;
    if folders.is_empty() {
        // The folder itself is what was meant, so what it lacks is told.
        look(&path);
    }
    folders.iter().for_each(|it| look(it));
    output::out(&text)?;
    Ok(if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn install(args: &InstallArgs, skills: &Skills, target: &Path) -> Result<ExitCode> {
    let fetched;
    let folder = Path::new(&args.source);
    let (source, is_named) = if folder.is_dir() {
        (folder.canonicalize().with_context(|| args.source.clone())?, true)
    } else if is_address(&args.source) {
        fetched = tempfile::tempdir().context("cannot make a temporary folder")?;
        let clone = fetched.path().join("repository");
        fetch(&args.source, &clone).await?;
        (clone, false)
    } else {
        let source = &args.source;
        return Err(UsageError(format!(
            "no such folder: {source}; a git repository is named by its address, as https://... or git@host:..."
        ))
        .into());
    };
    let mut found = skills::candidates(&source, is_named)?;
    if !args.names.is_empty() {
        let known: Vec<_> = found.iter().map(|it| it.skill.name.clone()).collect();
        if let Some(missing) = args.names.iter().find(|it| !known.contains(&it.to_lowercase())) {
            return Err(anyhow!("{} has no skill '{missing}'; it has {}", args.source, known.join(", ")));
        }
        found.retain(|it| args.names.iter().any(|name| name.to_lowercase() == it.skill.name));
    }
    for candidate in &found {
        let place = skills::install(candidate, target, args.force).map_err(|err| match err {
            InstallError::Exists { .. } => anyhow::Error::new(err).context("not installed (--force replaces it)"),
            err => err.into(),
        })?;
        output::line(&format!("installed {} to {}", candidate.skill.name, place.display()))?;
        let catalog = skills.find();
        let used = catalog.find(&candidate.skill.name);
        if let Some(other) = used.filter(|it| it.file != place.join("SKILL.md")) {
            output::note(&format!("note: {} has the same name and ranks higher", other.file.display()));
        } else if used.is_none() {
            output::note("note: it is not found, because the setting skill_dirs names other folders");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a text names a git repository, and not a folder.
fn is_address(source: &str) -> bool {
    let is_remote = source.split_once(':').is_some_and(|(host, _)| host.contains('@') && !host.contains('/'));
    source.contains("://") || is_remote
}

/// Fetches the newest state of a repository by the git program.
async fn fetch(address: &str, folder: &Path) -> Result<()> {
    let mut command = Command::new("git");
    command
        .args(["clone", "--quiet", "--depth", "1", "--"])
        .arg(address)
        .arg(folder)
        // Nobody is there to answer.
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().context("cannot start git, which fetches repositories")?;
    let stderr = child.stderr.take();
    let work = async {
        let mut words = Vec::new();
        if let Some(mut stderr) = stderr {
            (&mut stderr).take(MAX_GIT_WORDS).read_to_end(&mut words).await?;
            tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
        }
        Ok::<_, std::io::Error>((child.wait().await?, words))
    };
    let mut interrupts = Interrupts::listen();
    let (status, words) = tokio::select! {
        done = tokio::time::timeout(GIT_LIMIT, work) => match done {
            Ok(done) => done.context("git failed")?,
            Err(_) => return Err(anyhow!("git did not fetch {address} within {} s", GIT_LIMIT.as_secs())),
        },
        () = interrupts.next() => return Err(TurnError::Cancelled.into()),
    };
    if !status.success() {
        let words = String::from_utf8_lossy(&words);
        return Err(anyhow!("git did not fetch {address}: {}", words.trim()));
    }
    Ok(())
}
