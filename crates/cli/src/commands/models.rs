//! `bub models`: what providers offer, and whether a model works.

mod probe;

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use bub::{
    App, Builder,
    kernel::{
        model::{ModelError, ModelInfo, ModelProvider, ModelSpec},
        text::thousands,
        turn::TurnError,
    },
};
use serde_json::json;

use crate::{
    args::{ModelsArgs, ModelsCommand},
    error::UsageError,
    output,
    terminal::safe::safe_line,
};

/// The most characters of a model's id that are padded to.
const MAX_ID_WIDTH: usize = 48;

/// Does what `bub models` asks for.
pub(crate) async fn run(args: ModelsArgs, builder: Builder) -> Result<ExitCode> {
    let app = builder.build()?;
    let done = match &args.command {
        Some(ModelsCommand::Test { model, json }) => test(&app, model.as_deref(), *json).await,
        None if args.providers => providers(&app, args.json),
        None => list(&app, &args).await,
    };
    app.close().await;
    done
}

/// Lists what one provider offers.
async fn list(app: &App, args: &ModelsArgs) -> Result<ExitCode> {
    let name = match (&args.provider, &app.settings().model) {
        (Some(name), _) => name.clone(),
        (None, Some(model)) => ModelSpec::parse(model).map_err(TurnError::from)?.provider,
        (None, None) => {
            return Err(UsageError(format!(
                "no model is configured, so name a provider: bub models PROVIDER; there are {}",
                names(app).join(", ")
            ))
            .into());
        }
    };
    let found = app.runtime().providers().iter().find(|it| it.name().eq_ignore_ascii_case(&name));
    let provider = found.ok_or_else(|| {
        UsageError(format!("there is no model provider '{name}'; there are {}", names(app).join(", ")))
    })?;
    let mut models = provider.list().await.map_err(|err| match err {
        ModelError::Rejected { status: Some(404), .. } => {
            anyhow!("{err}; no models are listed at that address: check api_base, or name a model all the same")
        }
        err => TurnError::from(err).into(),
    })?;
    if let Some(text) = &args.filter {
        let text = text.to_lowercase();
        models.retain(|it| {
            it.id.to_lowercase().contains(&text) || it.name.as_ref().is_some_and(|it| it.to_lowercase().contains(&text))
        });
    }
    if models.is_empty() && !args.json {
        output::note("no such models");
    }
    let width = models.iter().map(|it| it.id.chars().count()).max().unwrap_or_default().min(MAX_ID_WIDTH);
    for model in &models {
        output::line(&if args.json { row_json(&**provider, model) } else { row(&**provider, model, width) })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn names(app: &App) -> Vec<&str> {
    app.runtime().providers().iter().map(|it| it.name()).collect()
}

fn row_json(provider: &dyn ModelProvider, model: &ModelInfo) -> String {
    let ModelInfo { id, name, context_tokens, output_tokens, input_price, output_price } = model;
    json!({
        "provider": provider.name(), "id": id, "name": name, "context_tokens": context_tokens,
        "output_tokens": output_tokens, "input_price": input_price, "output_price": output_price,
    })
    .to_string()
}

/// Name, window, price, as far as the provider tells.
fn row(provider: &dyn ModelProvider, model: &ModelInfo, width: usize) -> String {
    let mut facts = Vec::new();
    if let Some(tokens) = model.context_tokens {
        facts.push(format!("{} tokens", thousands(tokens)));
    }
    match (model.input_price, model.output_price) {
        (Some(0.0), Some(0.0)) => facts.push("free".to_owned()),
        (Some(input), Some(output)) => facts.push(format!("${} in, ${} out", dollars(input), dollars(output))),
        _ => {}
    }
    facts.extend(model.name.clone());
    facts.iter_mut().for_each(|it| *it = safe_line(it));
    let line = format!("{}:{:width$}  {}", provider.name(), safe_line(&model.id), facts.join("  "));
    line.trim_end().to_owned()
}

/// Dollars with as many digits as say something.
fn dollars(price: f64) -> String {
    let text = format!("{price:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() { "0".to_owned() } else { text.to_owned() }
}

/// Lists the providers, and what each would be reached with.
fn providers(app: &App, json: bool) -> Result<ExitCode> {
    let settings = app.settings();
    let width = names(app).iter().map(|it| it.len()).max().unwrap_or_default();
    for provider in app.runtime().providers() {
        let name = provider.name();
        let endpoint = settings.endpoint(name);
        let key = endpoint.api_key.as_ref().map(|it| it.origin.to_string());
        let address = endpoint.api_base.as_ref().map(|it| it.url.clone());
        let problem = provider.client("probe").err().map(|it| it.to_string());
        if json {
            let row = json!({
                "name": name, "type": endpoint.provider, "custom": endpoint.custom.is_some(), "key": key,
                "api_base": address, "ready": problem.is_none(), "problem": problem,
            });
            output::line(&row.to_string())?;
            continue;
        }
        let state = match (&problem, key) {
            (Some(problem), _) => format!("not ready: {problem}"),
            (None, Some(key)) => format!("ready, key from {key}"),
            (None, None) => "ready, without a key".to_owned(),
        };
        let address = address.map(|it| format!("  {}", safe_line(&it))).unwrap_or_default();
        output::line(&format!("{name:width$}  {}{address}", safe_line(&state)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tries a model.
async fn test(app: &App, model: Option<&str>, json: bool) -> Result<ExitCode> {
    let Some(model) = model.or(app.settings().model.as_deref()) else {
        return Err(UsageError("no model is configured, so name one: bub models test PROVIDER:MODEL".to_owned()).into());
    };
    let spec = ModelSpec::parse(model).map_err(TurnError::from)?;
    let client = app.runtime().client(&spec).map_err(TurnError::from)?;
    if !json {
        output::note(&format!("asking {spec}"));
    }
    let findings =
        probe::probe(&*client, &spec.model, |finding| if json { Ok(()) } else { output::line(&finding.line()) })
            .await?;
    let works = findings.iter().all(probe::Finding::works);
    if json {
        let results: serde_json::Map<_, _> = findings.iter().map(|it| (it.what.to_owned(), it.to_value())).collect();
        output::line(&json!({"model": spec.to_string(), "works": works, "results": results}).to_string())?;
    }
    match findings.first().and_then(|it| it.error.as_ref()) {
        Some(error) => Err(anyhow!("{spec} did not answer: {error}")),
        None => Ok(ExitCode::SUCCESS),
    }
}
