//! Tools by name, in the order of their registration.

use std::{collections::HashMap, fmt, sync::Arc};

use super::DynTool;

/// Tools by name. Their order is the one in which they are offered to the model.
#[derive(Clone, Default)]
pub struct ToolSet {
    order: Vec<Arc<dyn DynTool>>,
    by_name: HashMap<String, usize>,
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|it| it.name())).finish()
    }
}

impl ToolSet {
    /// Adds a tool and returns the one of that name that it replaces, whose place it takes.
    pub fn insert(&mut self, tool: Arc<dyn DynTool>) -> Option<Arc<dyn DynTool>> {
        let name = tool.name().to_owned();
        match self.by_name.get(&name).and_then(|idx| self.order.get_mut(*idx)) {
            Some(place) => Some(std::mem::replace(place, tool)),
            None => {
                self.by_name.insert(name, self.order.len());
                self.order.push(tool);
                None
            }
        }
    }

    /// Finds a tool by its exact runtime name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<dyn DynTool>> {
        self.by_name.get(name).and_then(|idx| self.order.get(*idx))
    }

    /// Finds a tool by runtime name or alias, in any case; the runtime name wins.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<dyn DynTool>> {
        let wanted = name.trim().to_lowercase();
        self.order
            .iter()
            .find(|it| it.name().to_lowercase() == wanted)
            .or_else(|| self.order.iter().find(|it| it.name().replace('.', "_").to_lowercase() == wanted))
    }

    /// The runtime names of the tools that a caller named in either form.
    ///
    /// # Errors
    /// `unknown tool name(s): 'a', 'b'`, sorted.
    pub fn resolve_names<S: AsRef<str>>(&self, names: &[S]) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let mut unknown = Vec::new();
        for name in names.iter().map(AsRef::as_ref) {
            match self.find(name) {
                Some(tool) => found.push(tool.name().to_owned()),
                None => unknown.push(format!("'{name}'")),
            }
        }
        if !unknown.is_empty() {
            unknown.sort();
            unknown.dedup();
            return Err(format!("unknown tool name(s): {}", unknown.join(", ")));
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Tools that the model would know by one name: the one that it is offered, and one that it is not.
    /// The tool whose own name it is comes first, else the one that was registered first.
    #[must_use]
    pub fn collisions(&self) -> Vec<(String, String)> {
        let mut by_alias: HashMap<String, &str> = HashMap::with_capacity(self.order.len());
        let mut found = Vec::new();
        for tool in &self.order {
            let (name, alias) = (tool.name(), tool.name().replace('.', "_"));
            match by_alias.get(&alias).copied() {
                None => drop(by_alias.insert(alias, name)),
                Some(other) if name == alias => {
                    found.push((name.to_owned(), other.to_owned()));
                    by_alias.insert(alias, name);
                }
                Some(other) => found.push((other.to_owned(), name.to_owned())),
            }
        }
        found
    }

    /// All tools, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Arc<dyn DynTool>] {
        &self.order
    }

    /// All tools, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn DynTool>> {
        self.order.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
