//! What the model is told about code mode.

use std::path::Path;

/// Where the definitions of the tools are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stub<'a> {
    /// In this file, which the model can read.
    File(&'a Path),
    /// In the prompt.
    Inline(&'a str),
}

/// Everything that the block says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    /// The name of the tool that runs code.
    pub(crate) name: &'a str,
    pub(crate) stub: Stub<'a>,
    /// Where code runs and what it lacks, or why it does not run.
    pub(crate) runner: &'a str,
    /// Whether media can be attached.
    pub(crate) media: bool,
    /// Which model code gets that names none, as a sentence.
    pub(crate) models: &'a str,
}

/// The block `<code_mode>` of the system prompt.
pub(crate) fn block(about: &About<'_>) -> String {
    let About { name, stub, runner, media, models } = about;
    let place = match stub {
        Stub::File(path) => format!(
            "Their definitions are in {}: read that file before the first call, do not guess parameters.",
            path.display()
        ),
        Stub::Inline(_) => "Their definitions follow below.".to_owned(),
    };
    let attach = if *media {
        " To see an image, an audio clip or a video yourself, attach it: `await tools.attach_image(image=path)`, and \
         likewise attach_audio and attach_video."
    } else {
        ""
    };
    let mut text = format!(
        "<code_mode>\n\
         More tools than those on offer exist as async functions of Python code: `{name}` runs the code, and in it \
         they are `tools.<name>(...)`. {place}\n\
         Always await them, and pass keyword arguments only. They return data of the declared types, not text, and \
         raise `BubError` when they fail. Top-level `await` works.\n\
         Only what the code prints comes back, so print what you need and no more; the value of a last expression is \
         not shown. Do in one run what belongs together: loop, filter and compare in code instead of making one call \
         at a time, and run independent calls at once with `await asyncio.gather(...)`.{attach}\n\
         The code can ask models too, by the module `republic`. {models}\n\
         {runner}"
    );
    if let Stub::Inline(definitions) = stub {
        text.push_str("\n\n```python\n");
        text.push_str(definitions.trim_end());
        text.push_str("\n```");
    }
    text.push_str("\n</code_mode>");
    text
}
