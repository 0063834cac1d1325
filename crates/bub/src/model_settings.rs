//! The model providers and the options of requests, from the settings.

mod cap;
mod copilot;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use bub_kernel::{
    environment::Environment,
    model::{
        ModelClient, ModelError, ModelInfo, ModelOptions, ModelProvider, ModelSpec, OutputFormat, ProviderTool,
        ToolChoice,
    },
};
use bub_models::{CodexLogin, CopilotLogin, GrokLogin, Provider, ProviderConfig, ProviderKind, TokenSource, Wire};
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use self::{cap::Capped, copilot::GhToken};
use crate::{
    settings::{Settings, SettingsError},
    windows::Windows,
};

/// What the connection's options may be, with their units.
const CLIENT_ARGS: &str = "api_format, headers, extra_body, timeout and connect_timeout (seconds of silence), \
                           max_retries, retry_delay and max_retry_delay (seconds)";

/// The names of the providers that are known without being configured.
pub(crate) fn known_names() -> impl Iterator<Item = &'static str> {
    ProviderKind::ALL.into_iter().flat_map(ProviderKind::names)
}

/// The user's own providers, and those that are known. What a provider needs of the settings is looked
/// up when it is first used: most runs use one of them, and commands none.
///
/// `local` is this machine, whose programs know some of the credentials.
///
/// For an [`Agent`](crate::Agent) that is to use the models of the application.
#[must_use]
pub fn providers(settings: &Settings, local: &Arc<dyn Environment>) -> Vec<Arc<dyn ModelProvider>> {
    let shared = Arc::new(settings.clone());
    let own: Vec<String> = settings.custom_providers().map(|(name, _)| name.to_lowercase()).collect();
    let known = known_names().filter(|it| !own.iter().any(|own| own == it)).map(str::to_owned).collect::<Vec<_>>();
    let configured = |name| -> Arc<dyn ModelProvider> {
        Arc::new(ConfiguredProvider { name, settings: shared.clone(), local: local.clone(), provider: OnceLock::new() })
    };
    own.into_iter().chain(known).map(configured).collect()
}

/// A provider whose configuration is read when it is first used.
struct ConfiguredProvider {
    name: String,
    settings: Arc<Settings>,
    local: Arc<dyn Environment>,
    provider: OnceLock<Result<Provider, String>>,
}

impl fmt::Debug for ConfiguredProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfiguredProvider").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ConfiguredProvider {
    fn provider(&self) -> Result<&Provider, ModelError> {
        self.provider
            .get_or_init(|| config(&self.settings, &self.name, &self.local).map(Provider::new))
            .as_ref()
            .map_err(|problem| ModelError::Config(problem.clone()))
    }
}

#[async_trait]
impl ModelProvider for ConfiguredProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn client(&self, model: &str) -> Result<Arc<dyn ModelClient>, ModelError> {
        let spec = ModelSpec { provider: self.name.clone(), model: model.to_owned() };
        Ok(Arc::new(Capped {
            inner: self.provider()?.client(model)?,
            spec,
            window: self.settings.context_window,
            windows: Windows::new(&self.settings.paths),
            limits: OnceCell::new(),
        }))
    }

    async fn list(&self) -> Result<Vec<ModelInfo>, ModelError> {
        let models = self.provider()?.list().await?;
        Windows::new(&self.settings.paths).remember(&self.name, &models).await;
        Ok(models)
    }
}

/// How a provider is reached: its key, its address, and the options of the connection.
fn config(settings: &Settings, name: &str, local: &Arc<dyn Environment>) -> Result<ProviderConfig, String> {
    let endpoint = settings.endpoint(name);
    let kind: ProviderKind = endpoint.provider.parse().map_err(|err: ModelError| err.to_string())?;
    let mut config = ProviderConfig::new(name, kind);
    if let Some(key) = endpoint.api_key {
        config.key_source = Some(format!("{} ({})", key.origin, key.secret));
        config.api_key = Some(key.secret.expose().to_owned());
    }
    config.api_base = endpoint.api_base.map(|it| it.url);
    // One's own server of a kind is another server: the logins of the usual one are not for it.
    let is_elsewhere = endpoint.custom.is_some() && config.api_base.is_some();
    config.tokens = tokens(kind, settings, local, is_elsewhere);
    apply_client_args(&mut config, &settings.client_args)?;
    if let Some(format) = endpoint.api_format {
        config.api_format = Some(format.parse().map_err(|err: ModelError| format!("providers.{name}: {err}"))?);
    }
    Ok(config)
}

/// What gives a kind's passing credentials.
fn tokens(
    kind: ProviderKind,
    settings: &Settings,
    local: &Arc<dyn Environment>,
    is_elsewhere: bool,
) -> Option<Arc<dyn TokenSource>> {
    match kind {
        ProviderKind::Grok => {
            let file = settings.grok_login();
            // Without a login the provider lacks a key, and says so before it is asked anything.
            (!is_elsewhere && file.exists()).then(|| Arc::new(GrokLogin::new(file)) as Arc<dyn TokenSource>)
        }
        ProviderKind::Codex => Some(Arc::new(CodexLogin::new(settings.codex_login()))),
        ProviderKind::GithubCopilot => {
            let file = settings.paths.copilot_login();
            if !is_elsewhere && file.exists() {
                return Some(Arc::new(CopilotLogin::new(file)));
            }
            Some(Arc::new(GhToken { environment: local.clone() }))
        }
        _ => None,
    }
}

/// Checks the options of the connection and of requests, so that a mistake is told at the start.
///
/// # Errors
/// The first option that is wrong, and what it should be.
pub(crate) fn check(settings: &Settings) -> Result<(), SettingsError> {
    let wrong = |key: &str, problem: String| {
        let origin = settings.origin(key).unwrap_or(crate::settings::Origin::Default);
        Err(SettingsError::Value { key: key.to_owned(), origin, problem })
    };
    let mut probe = ProviderConfig::new("any", ProviderKind::OpenAi);
    if let Err(problem) = apply_client_args(&mut probe, &settings.client_args) {
        return wrong("client_args", problem);
    }
    if let Err(problem) = read_options(settings) {
        return wrong("completion_args", problem);
    }
    Ok(())
}

/// Reads `client_args`.
fn apply_client_args(config: &mut ProviderConfig, args: &Map<String, Value>) -> Result<(), String> {
    for (key, value) in args {
        let bad = |expected: &str| Err(format!("client_args.{key} must be {expected}, not {value}"));
        let seconds = || value.as_f64().and_then(|it| Duration::try_from_secs_f64(it).ok());
        match (key.as_str(), value) {
            (_, Value::Null) => {}
            ("api_format", value) => match value.as_str().map(str::parse::<Wire>) {
                // One setting for all providers: those that do not speak it keep their own.
                Some(Ok(wire)) => config.api_format = Some(wire).filter(|it| config.kind.wires().contains(it)),
                Some(Err(err)) => return Err(format!("client_args: {err}")),
                None => return bad("a text"),
            },
            ("headers", Value::Object(headers)) => {
                let headers = headers.iter().map(|(name, value)| (name.clone(), bub_kernel::text::render(value)));
                config.headers.extend(headers);
            }
            ("extra_body", Value::Object(fields)) => config.extra_body = fields.clone(),
            ("headers" | "extra_body", _) => return bad("a map"),
            ("timeout", _) => match seconds() {
                Some(limit) => (config.timeouts.first_byte, config.timeouts.between) = (limit, limit),
                None => return bad("a number of seconds"),
            },
            ("max_retries", _) => match value.as_u64().and_then(|it| u32::try_from(it).ok()) {
                Some(max) => config.retries.max = max,
                None => return bad("a whole number"),
            },
            ("connect_timeout" | "retry_delay" | "max_retry_delay", _) => {
                let Some(limit) = seconds() else { return bad("a number of seconds") };
                match key.as_str() {
                    "connect_timeout" => config.timeouts.connect = limit,
                    "retry_delay" => config.retries.delay = limit,
                    _ => config.retries.max_delay = limit,
                }
            }
            _ => return Err(format!("client_args has no '{key}'; it may have {CLIENT_ARGS}")),
        }
    }
    Ok(())
}

/// `completion_args`: what has a name of its own is read, everything else goes into the request as it is.
/// What is wrong was told by [`check`].
pub(crate) fn options(settings: &Settings) -> ModelOptions {
    read_options(settings).unwrap_or_default()
}

fn read_options(settings: &Settings) -> Result<ModelOptions, String> {
    let mut options = ModelOptions { max_tokens: Some(settings.max_tokens), ..ModelOptions::default() };
    for (key, value) in &settings.completion_args {
        let bad = |expected: &str| format!("completion_args.{key} must be {expected}, not {value}");
        let number = || value.as_f64().map(Some).ok_or_else(|| bad("a number"));
        let count = || {
            let count = value.as_u64().and_then(|it| u32::try_from(it).ok());
            count.map(Some).ok_or_else(|| bad("a whole number"))
        };
        match key.as_str() {
            _ if value.is_null() => {}
            "max_tokens" => options.max_tokens = count()?,
            "top_k" => options.top_k = count()?,
            "temperature" => options.temperature = number()?,
            "top_p" => options.top_p = number()?,
            "presence_penalty" => options.presence_penalty = number()?,
            "frequency_penalty" => options.frequency_penalty = number()?,
            "seed" => options.seed = Some(value.as_u64().ok_or_else(|| bad("a whole number"))?),
            "parallel_tool_calls" => {
                options.parallel_tool_calls = Some(value.as_bool().ok_or_else(|| bad("true or false"))?);
            }
            "reasoning_effort" => {
                options.reasoning_effort = Some(value.as_str().ok_or_else(|| bad("a text"))?.to_owned());
            }
            "stop" => options.stop = words(value).ok_or_else(|| bad("a text or a list of texts"))?,
            "tool_choice" => match value {
                Value::String(choice) => options.tool_choice = Some(tool_choice(choice)),
                // As the wire has it.
                other => drop(options.extra_body.insert(key.clone(), other.clone())),
            },
            "output" => {
                let name = value.get("name").and_then(Value::as_str);
                let (Some(name), Some(schema)) = (name, value.get("schema")) else {
                    return Err(bad("a map with `name` and `schema`"));
                };
                options.output = Some(OutputFormat { name: name.to_owned(), schema: schema.clone() });
            }
            "provider_tools" => {
                let tools = value.as_array().ok_or_else(|| bad("a list"))?;
                options.provider_tools = tools.iter().map(provider_tool).collect::<Result<_, _>>()?;
            }
            "extra_body" => {}
            _ => drop(options.extra_body.insert(key.clone(), value.clone())),
        }
    }
    match settings.completion_args.get("extra_body") {
        None | Some(Value::Null) => {}
        Some(Value::Object(fields)) => options.extra_body.extend(fields.clone()),
        Some(other) => return Err(format!("completion_args.extra_body must be a map, not {other}")),
    }
    Ok(options)
}

/// One text, or several.
fn words(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(many) => many.iter().map(|it| it.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

fn tool_choice(choice: &str) -> ToolChoice {
    match choice {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        name => ToolChoice::Tool(name.replace('.', "_")),
    }
}

/// A tool that the provider runs: its name, or `{api_format, definition}`.
fn provider_tool(value: &Value) -> Result<ProviderTool, String> {
    match value.as_str() {
        Some("web_search") => return Ok(ProviderTool::WebSearch),
        Some("web_fetch") => return Ok(ProviderTool::WebFetch),
        Some("code_execution") => return Ok(ProviderTool::CodeExecution),
        Some("image_generation") => return Ok(ProviderTool::ImageGeneration),
        _ => {}
    }
    match (value.get("api_format").and_then(Value::as_str), value.get("definition")) {
        (Some(format), Some(definition)) => {
            let api_format = format.parse::<Wire>().map_err(|err| format!("completion_args.provider_tools: {err}"))?;
            Ok(ProviderTool::Native { api_format: api_format.as_str().to_owned(), definition: definition.clone() })
        }
        _ => Err(format!(
            "completion_args.provider_tools: {value} is none of web_search, web_fetch, code_execution, \
             image_generation, or a map with `api_format` and `definition`"
        )),
    }
}
