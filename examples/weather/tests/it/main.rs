//! The plugin's tool over real files, and what it registers.

#[cfg(test)]
mod plugin;
