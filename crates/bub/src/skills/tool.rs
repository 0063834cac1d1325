//! Skills, on demand.

use bub_kernel::{similar::close_matches, tool::prelude::*};

use super::{
    Skills,
    hooks::{allowed, allows},
};

/// Read a skill: instructions for a kind of task. With a name, returns the skill's text and where it lies; read it before you begin a task that a skill is about. Without a name, lists the skills.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SkillArgs {
    /// The skill's name.
    #[serde(default)]
    name: Option<String>,
}

/// A skill that can't be used.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
pub struct NotLoaded {
    /// Its file.
    file: String,
    /// Why.
    reason: String,
}

/// What came of it.
#[derive(Debug, JsonSchema, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SkillResult {
    /// The skills that there are.
    List {
        /// Their names.
        skills: Vec<String>,
        /// For people: those that can't be used.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        not_loaded: Vec<NotLoaded>,
    },
    /// A skill.
    Content {
        /// Its name.
        name: String,
        /// The path of its file.
        location: String,
        /// Its text.
        content: String,
    },
    /// There is no such skill, or it may not be used.
    Failure {
        /// What is wrong.
        error: String,
        /// Names that it may have meant.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        similar: Vec<String>,
        /// Skills of that name that can't be used.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        not_loaded: Vec<NotLoaded>,
    },
}

/// The tool `skill`.
#[derive(Clone, Debug)]
pub struct SkillTool {
    skills: Skills,
}

impl SkillTool {
    /// A tool over skills.
    #[must_use]
    pub fn new(skills: Skills) -> Self {
        Self { skills }
    }
}

impl Tool for SkillTool {
    const NAME: &'static str = "skill";
    type Args = SkillArgs;
    type Output = SkillResult;

    async fn call(&self, ctx: &ToolContext, args: SkillArgs) -> Result<SkillResult, ToolError> {
        let name = args.name.as_deref().map(str::trim).filter(|it| !it.is_empty());
        let failure = |error: String| SkillResult::Failure { error, similar: Vec::new(), not_loaded: Vec::new() };
        if let Some(name) = name.filter(|it| !allows(&ctx.state, it)) {
            return Ok(failure(format!("skill '{name}' is not allowed in this context")));
        }
        let catalog = self.skills.catalog().await;
        let rejected = |wanted: Option<&str>| {
            let wanted = wanted.map(str::to_lowercase);
            let of_name =
                |it: &&super::Rejected| wanted.as_ref().is_none_or(|wanted| it.name.to_lowercase() == *wanted);
            let entry = |it: &super::Rejected| NotLoaded {
                file: it.file.to_string_lossy().into_owned(),
                reason: it.reason.clone(),
            };
            catalog.rejected.iter().filter(of_name).map(entry).collect::<Vec<_>>()
        };
        let Some(name) = name else {
            let skills = allowed(&catalog, &ctx.state).into_iter().map(|it| it.name.clone()).collect();
            // A person can mend them, the model is not bothered.
            let not_loaded = if ctx.caller == Caller::Command { rejected(None) } else { Vec::new() };
            return Ok(SkillResult::List { skills, not_loaded });
        };
        let Some(skill) = catalog.find(name) else {
            let known: Vec<_> = allowed(&catalog, &ctx.state).into_iter().map(|it| it.name.as_str()).collect();
            let similar = close_matches(&name.to_lowercase(), known).into_iter().map(str::to_owned).collect();
            let error = "no such skill".to_owned();
            return Ok(SkillResult::Failure { error, similar, not_loaded: rejected(Some(name)) });
        };
        match self.skills.text(skill.clone()).await {
            Ok(text) => {
                Ok(SkillResult::Content { name: skill.name.clone(), location: text.location, content: text.body })
            }
            Err(reason) => Err(ToolError::raised("OSError", format!("{}: {reason}", skill.file.display()))),
        }
    }

    fn render(&self, result: &SkillResult) -> Option<String> {
        let lines = |title: &str, all: &[NotLoaded]| -> String {
            let lines: String = all.iter().map(|it| format!("\n- {}: {}", it.file, it.reason)).collect();
            if lines.is_empty() { lines } else { format!("\n{title}{lines}") }
        };
        Some(match result {
            SkillResult::List { skills, not_loaded } => {
                let names: String = skills.iter().map(|it| format!("\n- {it}")).collect();
                format!("Available skills:{names}{}", lines("Not loaded:", not_loaded))
            }
            SkillResult::Content { location, content, .. } => {
                let content = if content.is_empty() { "(no content)" } else { content };
                format!("Location: {location}\n---\n{content}")
            }
            SkillResult::Failure { error, similar, not_loaded } => {
                let hint = match similar.as_slice() {
                    [] => String::new(),
                    names => format!("\nDid you mean: {}?", names.join(", ")),
                };
                format!("({error}){hint}{}", lines("Not loaded:", not_loaded))
            }
        })
    }
}
