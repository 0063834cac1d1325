//! What every setting is and where it comes from, for people: credentials shortened.

use std::fmt;

use bub_kernel::{
    plugin::{Section, SectionField},
    text,
};
use serde_json::Value;

use super::{
    Origin, Settings,
    layers::dotenv_path,
    paths::HOME_VARIABLE,
    secrets::{is_secret_name, setting_name, shorten, shorten_inside},
    table::{self, Preset},
};

/// One setting as `config show` prints it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    /// Its key, or the name of a variable that is no setting.
    pub key: String,
    /// Its value in one line; credentials shortened. What no value means, when there is none.
    pub value: String,
    /// Whether there is a value.
    pub is_set: bool,
    /// Where it comes from, the place that wins first; the others were merged with it.
    pub origins: Vec<Origin>,
}

/// A key of the configuration file that means nothing to bub.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct UnknownKey {
    /// The key, with its section.
    pub key: String,
    /// Its line, counted from 1.
    pub line: u64,
}

impl fmt::Debug for Settings {
    /// Writes what `config show` has, so that no credential gets into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.shown().iter().map(|it| (&it.key, &it.value))).finish()
    }
}

impl Settings {
    /// Every setting in the order of the reference, then the home folder, the files that were read,
    /// and the variables of providers.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        let mut all: Vec<_> = table::SETTINGS.iter().map(|it| self.show_setting(it)).collect();
        let row = |key: &str, value: String, origin: Origin| Shown {
            key: key.to_owned(),
            value,
            is_set: true,
            origins: vec![origin],
        };
        let paths = &self.paths;
        all.push(row("home", paths.home().display().to_string(), paths.home_origin().clone()));
        let exists = if self.layers.file.exists { "" } else { " (not there)" };
        all.push(row("config file", format!("{}{exists}", paths.config_file().display()), Origin::Default));
        if let Some(path) = dotenv_path(&self.layers) {
            all.push(row(".env", path.display().to_string(), Origin::Default));
        }
        let is_other = |name: &str| {
            name != HOME_VARIABLE
                && table::SETTINGS.iter().all(|it| it.variable != name)
                && name.starts_with("BUB_")
                && (name.ends_with("_API_KEY") || name.ends_with("_API_BASE"))
        };
        for name in self.layers.variable_names().filter(|it| is_other(it)) {
            if let Some((value, origin)) = self.layers.variable(name) {
                let mut value = Value::from(value);
                shorten_inside(name, &mut value);
                all.push(row(name, text::render(&value), origin));
            }
        }
        for provider in self.providers_in_use() {
            // Keys from the provider's own variables stand nowhere else in this list.
            if let Some(key) = self.endpoint(&provider).api_key
                && let Some(variable) = key.origin.variable()
                && !variable.starts_with("BUB_")
                && all.iter().all(|it| it.key != variable)
            {
                all.push(row(variable, key.secret.to_string(), key.origin.clone()));
            }
        }
        all
    }

    /// Keys of the configuration file that mean nothing to bub: likely slips. Maps at the top level
    /// are not among them, since plugins have sections of any name; those are [`Settings::sections`].
    #[must_use]
    pub fn unknown_keys(&self) -> Vec<UnknownKey> {
        let mut unknown = Vec::new();
        for (key, node) in self.layers.file.fields() {
            let is_known = table::find(key).is_some();
            match (is_section(key), node.as_map()) {
                _ if is_known => {}
                (true, Some(fields)) => {
                    let inner = fields.iter().map(|(name, it)| (format!("{key}.{name}"), it.line));
                    let inner = inner.filter(|(key, _)| table::find(key).is_none());
                    unknown.extend(inner.map(|(key, line)| UnknownKey { key, line }));
                }
                (true, None) | (false, Some(_)) => {}
                (false, None) => unknown.push(UnknownKey { key: key.clone(), line: node.line }),
            }
        }
        unknown
    }

    /// The settings of a plugin's section, with where they come from.
    #[must_use]
    pub fn shown_section(&self, section: &Section) -> Vec<Shown> {
        let show = |field: &SectionField| {
            let mut value = field.value.clone();
            shorten_inside(&field.name, &mut value);
            let file = &self.layers.file;
            let line = file.line_of(&[&section.name, &field.name]);
            Shown {
                key: format!("{}.{}", section.name, field.name),
                is_set: !value.is_null(),
                value: if value.is_null() { "none".to_owned() } else { text::render(&value).replace('\n', "\\n") },
                origins: vec![match self.section_text(&section.name, &field.name) {
                    Some((_, origin)) => origin,
                    None if field.is_given => Origin::File { path: file.path.clone(), line },
                    None => Origin::Default,
                }],
            }
        };
        section.fields.iter().map(show).collect()
    }

    /// Where a plugin's key such as `weather.sources[0].url` is set, or what is nearest above it in the file.
    pub(crate) fn place_of(&self, key: &str) -> Option<String> {
        let mut parts = key.split(['.', '[']);
        if let (Some(section), Some(field)) = (parts.next(), parts.next())
            && let Some((_, origin)) = self.section_text(section, field)
        {
            return Some(origin.to_string());
        }
        let parts: Vec<_> = key.split('.').map(|it| it.split('[').next().unwrap_or(it)).collect();
        let file = &self.layers.file;
        let line = Some(file.line_of(&parts)).filter(|it| *it > 0)?;
        Some(format!("{}:{line}", file.path.display()))
    }

    fn show_setting(&self, setting: &table::Setting) -> Shown {
        let key = setting.key.to_owned();
        let Some(resolved) = self.resolved.get(setting.key) else {
            return Shown { key, value: String::new(), is_set: false, origins: vec![Origin::Default] };
        };
        let mut value = resolved.value.clone();
        if setting.key == table::MODEL.key
            && let (Value::Null, Some(model)) = (&value, &self.model)
        {
            value = model.as_str().into();
        }
        let name = setting_name(setting);
        match &mut value {
            Value::String(text) if setting.secret && !is_secret_name(name) => *text = shorten(text),
            other => shorten_inside(name, other),
        }
        let (value, is_set) = match (&value, &setting.preset) {
            (Value::Null, Preset::None(meaning)) => ((*meaning).to_owned(), false),
            (value, _) => (text::render(value).replace('\n', "\\n"), true),
        };
        Shown { key, value, is_set, origins: resolved.origins.clone() }
    }
}

/// Whether settings of bub's own live under that top-level key.
pub(crate) fn is_section(key: &str) -> bool {
    table::SETTINGS.iter().any(|it| it.key.split_once('.').is_some_and(|(section, _)| section == key))
}
