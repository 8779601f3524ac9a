//! Lifts the two files that `/docs` needs out of Swagger UI's release. They lie there compressed, and stay so:
//! a member of the archive and a gzip file differ in what stands around the same bytes (RFC 1952).

use std::error::Error;
use std::path::{Path, PathBuf};

use rawzip::{CompressionMethod, ZipArchive};
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;

const FILES: [&str; 2] = ["swagger-ui-bundle.js", "swagger-ui.css"];
/// Deflate, no name, no time, and no word about the system that packed it.
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("there is no OUT_DIR")?);
    for name in FILES {
        let file = folder.join(format!("{name}.gz"));
        std::fs::write(file, gzip(name)?)?;
    }
    Ok(())
}

fn gzip(name: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let archive = ZipArchive::from_slice(SWAGGER_UI_VENDORED)?;
    let mut entries = archive.entries();
    while let Some(entry) = entries.next_entry()? {
        let path = entry.file_path().try_normalize()?.as_ref().to_owned();
        let is_it = Path::new(&path).ends_with(Path::new("dist").join(name));
        // The archive also holds what other packages of the same release are made of.
        if !is_it || path.contains("flavors") {
            continue;
        }
        if entry.compression_method() != CompressionMethod::DEFLATE {
            return Err(format!("{path} is compressed in another way").into());
        }
        let bytes = u32::try_from(entry.uncompressed_size_hint())?;
        let data = archive.get_entry(entry.wayfinder())?.data();
        let mut gzip = GZIP_HEAD.to_vec();
        gzip.extend_from_slice(data);
        gzip.extend_from_slice(&entry.crc32().to_le_bytes());
        gzip.extend_from_slice(&bytes.to_le_bytes());
        return Ok(gzip);
    }
    Err(format!("Swagger UI has no {name}").into())
}
