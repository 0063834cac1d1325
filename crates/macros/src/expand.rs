//! From a function to a tool.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Attribute, Error, GenericArgument, ItemFn, LitStr, Path, PathArguments, Result, ReturnType, Signature, Type,
    ext::IdentExt as _, spanned::Spanned as _,
};

use crate::{
    options::{Options, check_name},
    parameters::{self, Parameter, Problems},
};

/// The function as it was, and beside it the one that returns the tool; or the errors for its author.
pub(crate) fn tool(options: TokenStream, function: TokenStream, kernel: &str) -> TokenStream {
    let mut function: ItemFn = match syn::parse2(function.clone()) {
        Ok(function) => function,
        Err(_) => {
            let problem = Error::new(proc_macro2::Span::call_site(), "`#[tool]` stands before a function with a body");
            let problem = problem.to_compile_error();
            return quote!(#problem #function);
        }
    };
    // Read first: it takes out what the compiler would complain about once more.
    let parameters = parameters::read(&mut function.sig);
    let made = parameters.and_then(|parameters| {
        let options = syn::parse2(options)?;
        made(&options, &function, &parameters, kernel)
    });
    let made = made.unwrap_or_else(|err| err.to_compile_error());
    quote!(#function #made)
}

fn made(options: &Options, function: &ItemFn, parameters: &[Parameter], kernel: &str) -> Result<TokenStream> {
    check_signature(&function.sig)?;
    let kernel: Path = match &options.kernel {
        Some(path) => path.clone(),
        None => syn::parse_str(kernel)?,
    };
    let support = quote!(#kernel::tool::function);
    let (visibility, ident) = (&function.vis, &function.sig.ident);
    let getter = format_ident!("{}_tool", snake_case(&ident.unraw().to_string()), span = ident.span());
    let name = name(options, function)?;
    let about = format!("The tool `{name}`, made of [`{}`].", ident.unraw());
    let conditions = function.attrs.iter().filter(|it| it.path().is_ident("cfg"));
    let arguments = arguments(options, &function.attrs, parameters, &support);
    let exposure = options
        .exposure
        .as_ref()
        .map(|variant| quote!(const EXPOSURE: #kernel::tool::Exposure = #kernel::tool::Exposure::#variant;));
    let deferred = options.deferred.then(|| {
        quote!(
            const DEFERRED: bool = true;
        )
    });
    let (output, call) = call(function, parameters, &support);
    let render = options.renderer.as_ref().map(|renderer| {
        quote! {
            fn render(&self, output: &Self::Output) -> ::core::option::Option<::std::string::String> {
                #support::rendered(output, #renderer)
            }
        }
    });
    Ok(quote! {
        #(#conditions)*
        #[doc = #about]
        #[must_use]
        #visibility fn #getter() -> ::std::sync::Arc<dyn #kernel::tool::DynTool> {
            #arguments

            struct __Function;

            impl #kernel::tool::Tool for __Function {
                const NAME: &'static str = #name;
                #exposure
                #deferred
                type Args = __Arguments;
                type Output = #output;

                async fn call(
                    &self,
                    __ctx: &#kernel::tool::ToolContext,
                    __args: __Arguments,
                ) -> ::core::result::Result<Self::Output, #kernel::error::ToolError> {
                    #call
                }

                #render
            }

            // One for the whole program, so that its schemas are made once.
            static TOOL: ::std::sync::OnceLock<::std::sync::Arc<dyn #kernel::tool::DynTool>> =
                ::std::sync::OnceLock::new();
            ::std::sync::Arc::clone(TOOL.get_or_init(|| #kernel::tool::erase(__Function)))
        }
    })
}

/// The tool's name: the option, or the function's in snake case.
fn name(options: &Options, function: &ItemFn) -> Result<String> {
    if let Some(name) = &options.name {
        return Ok(name.value());
    }
    let ident = &function.sig.ident;
    let name = snake_case(&ident.unraw().to_string());
    check_name(&name).map_err(|problem| Error::new(ident.span(), format!("{problem}; give it a `name`")))?;
    Ok(name)
}

/// Each capital becomes `_` and its small letter.
pub(crate) fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter.is_uppercase() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake.trim_start_matches('_').to_owned()
}

fn check_signature(signature: &Signature) -> Result<()> {
    let mut problems = Problems::default();
    if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
        let advice = "a tool has one schema, so its function has no generics: name the types";
        problems.add(Error::new(signature.generics.span(), advice));
    }
    if let Some(it) = &signature.unsafety {
        problems.add(Error::new(it.span(), "models call tools: their function can't be unsafe"));
    }
    if let Some(it) = &signature.variadic {
        problems.add(Error::new(it.span(), "a tool has a fixed number of parameters"));
    }
    if let ReturnType::Type(_, kind) = &signature.output
        && let Type::ImplTrait(it) = &**kind
    {
        problems.add(Error::new(it.span(), "name the type that is returned: its schema is made of it"));
    }
    problems.none_or()
}

/// The struct of arguments, whose doc comment is the tool's description.
fn arguments(
    options: &Options,
    attributes: &[Attribute],
    parameters: &[Parameter],
    support: &TokenStream,
) -> TokenStream {
    let arguments: Vec<_> = parameters
        .iter()
        .filter_map(|it| match it {
            Parameter::Argument(argument) => Some(argument),
            Parameter::Context { .. } => None,
        })
        .collect();
    let defaults = arguments.iter().filter_map(|it| it.default());
    let fields = arguments.iter().map(|it| it.field());
    let description = match &options.description {
        Some(text) => quote!(#[schemars(description = #text)]),
        None => {
            let comments = attributes.iter().filter(|it| it.path().is_ident("doc"));
            quote!(#(#comments)*)
        }
    };
    let serde = quote!(#support::serde).to_string();
    let schemars = quote!(#support::schemars).to_string();
    let serde = LitStr::new(&serde, proc_macro2::Span::call_site());
    let schemars = LitStr::new(&schemars, proc_macro2::Span::call_site());
    quote! {
        #(#defaults)*

        #[derive(#support::Deserialize, #support::JsonSchema)]
        #[serde(crate = #serde)]
        #[schemars(crate = #schemars)]
        #description
        struct __Arguments {
            #(#fields,)*
        }
    }
}

/// The type of the result, and the body that calls the function.
fn call(function: &ItemFn, parameters: &[Parameter], support: &TokenStream) -> (TokenStream, TokenStream) {
    let ident = &function.sig.ident;
    let values = parameters.iter().map(|it| match it {
        Parameter::Context { by_reference: true } => quote!(__ctx),
        Parameter::Context { by_reference: false } => quote!(::core::clone::Clone::clone(__ctx)),
        Parameter::Argument(argument) => {
            let field = argument.ident();
            quote!(__args.#field)
        }
    });
    let wait = function.sig.asyncness.map(|_| quote!(.await));
    let call = quote!(#ident(#(#values),*) #wait);
    match &function.sig.output {
        ReturnType::Default => (quote!(()), quote!(#call; ::core::result::Result::Ok(()))),
        ReturnType::Type(_, kind) if is_result(kind) => (
            quote!(<#kind as #support::Fallible>::Output),
            quote! {
                use #support::errors::*;
                match #call {
                    ::core::result::Result::Ok(output) => ::core::result::Result::Ok(output),
                    ::core::result::Result::Err(err) => {
                        ::core::result::Result::Err(#support::Failure(err).into_tool_error())
                    }
                }
            },
        ),
        ReturnType::Type(_, kind) => (quote!(#kind), quote!(::core::result::Result::Ok(#call))),
    }
}

/// Whether a type is written as a `Result`. An alias has one type in brackets, or none.
fn is_result(kind: &Type) -> bool {
    let Type::Path(path) = kind else { return false };
    path.path.segments.last().is_some_and(|last| {
        let n_types = match &last.arguments {
            PathArguments::AngleBracketed(it) => {
                it.args.iter().filter(|it| matches!(it, GenericArgument::Type(_))).count()
            }
            _ => 0,
        };
        last.ident == "Result" && n_types <= 2
    })
}
