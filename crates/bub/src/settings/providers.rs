//! Which key and which address belong to a provider.
//!
//! Both are looked up in this order; the first that is there counts, but a key that is text from a
//! sample file (`your_key_here`) loses against a real one further down:
//!
//! 1. `providers.NAME.api_key`, for a provider of one's own;
//! 2. `api_key` of the command line, the environment, `.env` and the configuration file: a text for
//!    every provider, or a map from provider to key;
//! 3. `BUB_NAME_API_KEY`;
//! 4. the provider's own variable, such as `OPENAI_API_KEY`;
//! 5. the key that `bub login` left.
//!
//! Addresses are `api_base`, `BUB_NAME_API_BASE`, and `OPENAI_BASE_URL` or `OPENAI_API_BASE`.

use std::fmt;

use bub_kernel::{model::ModelSpec, similar::close_matches};
use bub_models::Wire;
use serde_json::{Map, Value};

use super::{
    Origin, Secret, Settings, SettingsError,
    layers::{Found, Layers},
    table::{API_BASE, API_KEY, PROVIDERS, Setting},
};

/// What a provider of the user's own may have.
const FIELDS: [&str; 4] = ["type", "api_key", "api_base", "api_format"];

/// The provider of the default model.
const DEFAULT_PROVIDER: &str = "openrouter";

/// The model that answers when a key for OpenRouter is all there is.
const DEFAULT_MODEL: &str = "openrouter:openrouter/free";

/// Variables beside `NAME_API_KEY` that hold a provider's key, in their own programs.
const OTHER_KEY_VARIABLES: &[(&str, &[&str])] = &[
    ("gemini", &["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
    ("google", &["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
    ("azure", &["AZURE_OPENAI_API_KEY", "AZURE_API_KEY"]),
    ("azure_openai", &["AZURE_OPENAI_API_KEY", "AZURE_API_KEY"]),
    ("huggingface", &["HF_TOKEN"]),
    ("qwen", &["DASHSCOPE_API_KEY"]),
    ("grok", &["XAI_API_KEY"]),
];

/// Variables beside `NAME_BASE_URL` and `NAME_API_BASE` that hold a provider's address.
const OTHER_BASE_VARIABLES: &[(&str, &[&str])] =
    &[("azure", &["AZURE_OPENAI_ENDPOINT"]), ("azure_openai", &["AZURE_OPENAI_ENDPOINT"])];

/// A credential and where it comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Credential {
    /// The credential.
    pub secret: Secret,
    /// Where it comes from.
    pub origin: Origin,
}

impl fmt::Display for Credential {
    /// For messages about a refused key: its place and its end, and whether it is a placeholder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.secret, self.origin)?;
        if self.secret.is_placeholder() { f.write_str(", which looks like a placeholder") } else { Ok(()) }
    }
}

/// An address and where it comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Address {
    /// The address.
    pub url: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// How to reach a provider.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// The provider that speaks: the `type` of one's own provider, else the name itself; lower case.
    pub provider: String,
    /// The name under `providers`, if it is one's own.
    pub custom: Option<String>,
    /// The key, if there is one.
    pub api_key: Option<Credential>,
    /// The address, if it is not the provider's usual one.
    pub api_base: Option<Address>,
    /// The wire format, if it is not the provider's usual one.
    pub api_format: Option<String>,
}

impl Settings {
    /// How to reach a provider: one of `providers`, or one that bub knows. The case of `name` doesn't matter.
    #[must_use]
    pub fn endpoint(&self, name: &str) -> Endpoint {
        Lookup::new(&self.layers, &self.providers, name).endpoint()
    }

    /// The names of the user's own providers, with the provider that each is a kind of.
    pub fn custom_providers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.providers.iter().map(|(name, it)| (name.as_str(), text_of(it, "type").unwrap_or_default()))
    }

    /// Checks that every provider of the user's own is a kind of one in `known`; case doesn't matter.
    ///
    /// # Errors
    /// [`SettingsError::Value`] that names the first that is not, and what there is.
    pub fn check_provider_types(&self, known: &[&str]) -> Result<(), SettingsError> {
        for (name, kind) in self.custom_providers() {
            if !known.iter().any(|it| same(it, kind)) {
                let key = format!("providers.{name}.type");
                let origin = self.origin_inside(&PROVIDERS, &["providers", name, "type"]);
                let problem = format!("{key} must be one of {}; found \"{kind}\"", known.join(", "));
                return Err(SettingsError::Value { key, origin, problem });
            }
        }
        Ok(())
    }

    /// The providers of the models that are configured, and the user's own.
    pub(crate) fn providers_in_use(&self) -> Vec<String> {
        let models = self.model.iter().chain(&self.fallback_models);
        let names = models.filter_map(|it| ModelSpec::parse(it).ok()).map(|it| it.provider);
        names.chain(self.providers.keys().cloned()).collect()
    }

    fn origin_inside(&self, setting: &Setting, keys: &[&str]) -> Origin {
        let found = self.layers.candidates(setting).into_iter().flatten().find(|it| inside(&it.value, keys).is_some());
        found.map_or(Origin::Default, |it| self.layers.refine(&it.origin, keys))
    }
}

/// The model when none is configured: the default one, if there is a key for it.
pub(crate) fn default_model(layers: &Layers, providers: &Map<String, Value>) -> Option<String> {
    let key = Lookup::new(layers, providers, DEFAULT_PROVIDER).endpoint().api_key?;
    (!key.secret.is_placeholder()).then(|| DEFAULT_MODEL.to_owned())
}

/// Checks the shape of `providers`.
pub(crate) fn check_shape(
    layers: &Layers,
    providers: &Map<String, Value>,
    origin: &Origin,
) -> Result<(), SettingsError> {
    for (name, value) in providers {
        let problem = |key: String, problem: &str| {
            let field = key.rsplit('.').next().unwrap_or_default();
            let origin = layers.refine(origin, &["providers", name, field]);
            Err(SettingsError::Value { problem: format!("{key} must be {problem}"), key, origin })
        };
        let Some(fields) = value.as_object() else {
            return problem(
                format!("providers.{name}"),
                "a map with `type`, and `api_key`, `api_base` and `api_format` if needed",
            );
        };
        if text_of(value, "type").is_none_or(|it| it.trim().is_empty()) {
            return problem(format!("providers.{name}.type"), "the name of a provider that bub knows");
        }
        for field in ["api_key", "api_base", "api_format"] {
            if fields.get(field).is_some_and(|it| !it.is_string() && !it.is_null()) {
                return problem(format!("providers.{name}.{field}"), "text");
            }
        }
        if let Some(format) = text_of(value, "api_format").filter(|it| it.parse::<Wire>().is_err()) {
            let known = Wire::ALL.map(Wire::as_str).join(", ");
            let told = format!("one of {known}; found {}", Value::from(format));
            return problem(format!("providers.{name}.api_format"), &told);
        }
    }
    Ok(())
}

/// The fields of the user's own providers that mean nothing, one line each.
pub(crate) fn odd_fields(layers: &Layers, providers: &Map<String, Value>) -> Vec<String> {
    let mut odd = Vec::new();
    for (name, value) in providers {
        let fields = value.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
        for field in fields.filter(|it| !FIELDS.contains(it)) {
            let near = close_matches(field, FIELDS).first().map(|it| format!(" (did you mean {it}?)"));
            let line = layers.file.line_of(&["providers", name, field]);
            let place = if line > 0 { format!("{}:{line}: ", layers.file.path.display()) } else { String::new() };
            odd.push(format!(
                "{place}providers.{name}.{field} has no effect{}; a provider has {}",
                near.unwrap_or_default(),
                FIELDS.join(", ")
            ));
        }
    }
    odd
}

/// The variables that hold a provider's key, in the order they are asked; the first is bub's own.
pub(crate) fn key_variables(provider: &str) -> Vec<String> {
    let stem = stem(provider);
    let mut all = vec![format!("BUB_{stem}_API_KEY"), format!("{stem}_API_KEY")];
    push_others(OTHER_KEY_VARIABLES, &stem, &mut all);
    all
}

/// The variables that hold a provider's address, in the order they are asked; the first is bub's own.
pub(crate) fn base_variables(provider: &str) -> Vec<String> {
    let stem = stem(provider);
    let mut all = vec![format!("BUB_{stem}_API_BASE"), format!("{stem}_BASE_URL"), format!("{stem}_API_BASE")];
    push_others(OTHER_BASE_VARIABLES, &stem, &mut all);
    all
}

/// One look-up.
struct Lookup<'a> {
    layers: &'a Layers,
    /// As asked, then the type if it is a custom one: the names to look for.
    names: Vec<String>,
    custom: Option<(&'a str, &'a Value)>,
}

impl<'a> Lookup<'a> {
    fn new(layers: &'a Layers, providers: &'a Map<String, Value>, name: &str) -> Self {
        let custom = providers.iter().find(|(key, _)| same(key, name)).map(|(key, value)| (key.as_str(), value));
        let mut names = vec![name.trim().to_lowercase()];
        // A provider with an address of its own is another server: the keys of the usual one are not for it.
        if let Some((_, fields)) = custom
            && text_of(fields, "api_base").is_none_or(|it| it.trim().is_empty())
        {
            names.extend(text_of(fields, "type").map(|it| it.trim().to_lowercase()));
            names.dedup();
        }
        Self { layers, names, custom }
    }

    fn endpoint(&self) -> Endpoint {
        let kept = self.layers.kept_keys.iter().filter(|kept| self.names.iter().any(|it| it == kept.provider));
        let kept = kept.map(|it| (it.key.clone(), it.origin()));
        let keys = self.candidates("api_key", &API_KEY, key_variables).into_iter().chain(kept);
        let mut keys: Vec<_> = keys.map(|(value, origin)| Credential { secret: Secret::new(value), origin }).collect();
        // Stable: among real keys, and among placeholders, the order of the places stays.
        keys.sort_by_key(|it| it.secret.is_placeholder());
        let base = self.candidates("api_base", &API_BASE, base_variables).into_iter().next();
        let custom_type = self.custom.and_then(|(_, fields)| text_of(fields, "type"));
        let name = self.names.first().map(String::as_str).unwrap_or_default();
        Endpoint {
            provider: custom_type.unwrap_or(name).trim().to_lowercase(),
            custom: self.custom.map(|(name, _)| name.to_owned()),
            api_key: keys.into_iter().next(),
            api_base: base.map(|(url, origin)| Address { url, origin }),
            api_format: self.custom.and_then(|(_, fields)| text_of(fields, "api_format")).map(str::to_owned),
        }
    }

    /// All values of `field` for the provider, the winning one first.
    fn candidates(
        &self,
        field: &str,
        explicit: &Setting,
        variables: impl Fn(&str) -> Vec<String>,
    ) -> Vec<(String, Origin)> {
        let mut all = Vec::new();
        if let Some((name, _)) = self.custom {
            for found in self.layers.candidates(&PROVIDERS).into_iter().flatten() {
                let keys = ["providers", name, field];
                if let Some(value) = inside(&found.value, &keys).and_then(Value::as_str) {
                    all.push((value.to_owned(), self.layers.refine(&found.origin, &keys)));
                }
            }
        }
        for Found { value, origin } in self.layers.candidates(explicit).into_iter().flatten() {
            match &value {
                Value::String(text) => all.push((text.clone(), origin)),
                Value::Object(fields) => all.extend(
                    self.by_name(fields)
                        .map(|(key, text)| (text.to_owned(), self.layers.refine(&origin, &[explicit.key, key]))),
                ),
                // A `null` says that there is none, whatever stands further down.
                _ => break,
            }
        }
        for variable in self.names.iter().flat_map(|it| variables(it)) {
            all.extend(self.layers.variable(&variable).map(|(value, origin)| (value.to_owned(), origin)));
        }
        all.iter_mut().for_each(|(value, _)| *value = value.trim().to_owned());
        all.retain(|(value, _)| !value.is_empty() && value != "null");
        all
    }

    fn by_name<'b>(&'b self, fields: &'b Map<String, Value>) -> impl Iterator<Item = (&'b str, &'b str)> {
        self.names.iter().filter_map(|name| {
            let (key, value) = fields.iter().find(|(key, _)| same(key, name))?;
            Some((key.as_str(), value.as_str()?))
        })
    }
}

/// What `value` has under all keys but the first, which is the setting's own.
fn inside<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().skip(1).try_fold(value, |it, key| it.get(key))
}

fn text_of<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// Whether two names mean one provider: case and the kind of hyphen don't matter.
fn same(one: &str, other: &str) -> bool {
    stem(one) == stem(other)
}

/// A provider's name as it stands in variables.
fn stem(provider: &str) -> String {
    provider.trim().to_uppercase().replace('-', "_")
}

fn push_others(table: &[(&str, &[&str])], stem: &str, all: &mut Vec<String>) {
    for (name, others) in table {
        if name.eq_ignore_ascii_case(stem) {
            all.extend(
                others
                    .iter()
                    .filter(|it| !all.iter().any(|had| had == *it))
                    .map(|it| (*it).to_owned())
                    .collect::<Vec<_>>(),
            );
        }
    }
}
