//! `fs.write`: the whole text of a file.

use bub_kernel::tool::prelude::*;

use super::FileLocks;

/// Write the complete text of a file. Missing folders are made; an existing file is overwritten.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct WriteArgs {
    /// File to write; a relative path starts at the workspace.
    path: String,
    /// All that the file will contain.
    content: String,
}

/// Writes a file whole, byte for byte as given.
#[derive(Clone, Debug, Default)]
pub struct FsWrite {
    locks: FileLocks,
}

impl FsWrite {
    /// Takes turns with the other tools that have these locks.
    #[must_use]
    pub fn new(locks: FileLocks) -> Self {
        Self { locks }
    }
}

impl Tool for FsWrite {
    const NAME: &'static str = "fs.write";
    const EXPOSURE: Exposure = Exposure::Direct;
    type Args = WriteArgs;
    type Output = String;

    async fn call(&self, ctx: &ToolContext, args: WriteArgs) -> Result<String, ToolError> {
        let path = ctx.env.resolve(&args.path)?;
        let _turn = self.locks.lock(&path).await;
        ctx.env.write(&path, args.content.as_bytes()).await?;
        Ok(format!("wrote: {}", ctx.env.true_path(&path).await))
    }
}
