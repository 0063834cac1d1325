//! The attribute that makes a tool of a function.
//!
//! It is written down where it is reached: `bub_kernel::tool` and `bub::tool`. All that happens when a
//! tool is called is the kernel's; the attribute writes the type that one would write by hand.

mod expand;
mod options;
mod parameters;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Makes a tool of a function, for crates that depend on `bub-kernel`.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::tool(options.into(), function.into(), "::bub_kernel").into()
}

/// Makes a tool of a function, for crates that depend on `bub`.
#[proc_macro_attribute]
pub fn tool_of_bub(options: TokenStream, function: TokenStream) -> TokenStream {
    expand::tool(options.into(), function.into(), "::bub::kernel").into()
}
