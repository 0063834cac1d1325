//! How the program is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[expect(clippy::disallowed_methods, reason = "how cargo tells a build script what it builds for")]
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|it| it == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        // At a fixed address, the 47,000 pointers in constants are right as they stand in the file. At a
        // random one each start would have to mend them all, page by page, which took longer than a
        // whole command does. The stack, the heap and the libraries stay at random addresses.
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
