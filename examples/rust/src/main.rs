//! detect MODEL.onnx PICTURE [LIBMMORT_ORT.so]: what a detector of `mmort export` finds, a line for each object.
//!
//! A line is: class, score, x1, y1, x2, y2 in pixels. A portable file needs no library. ORT_DYLIB_PATH is ONNX Runtime.
use std::{env, error::Error, process::ExitCode};

use image::RgbImage;
use ort::{session::Session, value::Tensor};
use serde_json::Value;

const MIN_SCORE: f32 = 0.3;

/// A picture's size in the network's input, and the input's own, which is padded.
struct Sizes {
    width: usize,
    height: usize,
    columns: usize,
    rows: usize,
}

/// The sizes that the metadata's `preprocessing` gives a picture.
fn sizes(settings: &Value, picture: &RgbImage) -> Sizes {
    let (mut width, mut height) = (picture.width() as usize, picture.height() as usize);
    if let (Some(w), Some(h)) = (settings["size"][0].as_f64(), settings["size"][1].as_f64()) {
        let (x, y) = (width as f64, height as f64);
        let scale = (w.max(h) / x.max(y)).min(w.min(h) / x.min(y));
        let keep_ratio = settings["keep_ratio"].as_bool().unwrap_or(true);
        width = if keep_ratio { ((x * scale + 0.5) as usize).max(1) } else { w as usize };
        height = if keep_ratio { ((y * scale + 0.5) as usize).max(1) } else { h as usize };
    }
    let divisor = settings["size_divisor"].as_u64().unwrap_or(1) as usize;
    Sizes { width, height, columns: width.div_ceil(divisor) * divisor, rows: height.div_ceil(divisor) * divisor }
}

/// A channel of a picture at any position, interpolated bilinearly between the centres of its pixels.
fn sample(picture: &RgbImage, x: f64, y: f64, channel: usize) -> f64 {
    let (left, top) = (x.floor(), y.floor());
    let mut value = 0.0;
    for row in [top, top + 1.0] {
        for column in [left, left + 1.0] {
            let inside = |position: f64, size: u32| position.clamp(0.0, f64::from(size - 1)) as u32;
            let pixel = picture.get_pixel(inside(column, picture.width()), inside(row, picture.height()));
            value += (1.0 - (x - column).abs()) * (1.0 - (y - row).abs()) * f64::from(pixel[channel]);
        }
    }
    value.round()
}

/// The network's input: resized, normalized, and padded with zeros on the right and below.
fn preprocess(picture: &RgbImage, settings: &Value, sizes: &Sizes) -> Vec<f32> {
    let mut input = vec![0.0; 3 * sizes.rows * sizes.columns];
    let x_scale = sizes.width as f64 / f64::from(picture.width());
    let y_scale = sizes.height as f64 / f64::from(picture.height());
    for channel in 0..3 {
        let source = if settings["to_rgb"].as_bool().unwrap_or(false) { channel } else { 2 - channel };
        let mean = settings["mean"][channel].as_f64().unwrap_or(0.0);
        let std = settings["std"][channel].as_f64().unwrap_or(1.0);
        for y in 0..sizes.height {
            for x in 0..sizes.width {
                let value = sample(picture, (x as f64 + 0.5) / x_scale - 0.5, (y as f64 + 0.5) / y_scale - 0.5, source);
                input[(channel * sizes.rows + y) * sizes.columns + x] = ((value - mean) / std) as f32;
            }
        }
    }
    input
}

fn run(model: &str, path: &str, library: Option<&String>) -> Result<(), Box<dyn Error>> {
    let picture = image::open(path)?.to_rgb8();
    let mut builder = Session::builder()?;
    if let Some(library) = library {
        builder = builder.with_operator_library(library)?;
    }
    let mut session = builder.commit_from_file(model)?;
    let entry = |key: &str| -> Result<Value, Box<dyn Error>> {
        let text = session.metadata()?.custom(key)?.ok_or("the file has no metadata of mmort export")?;
        Ok(serde_json::from_str(&text)?)
    };
    let (classes, settings) = (entry("classes")?, entry("preprocessing")?);
    if settings["pad_or"].as_u64().unwrap_or(0) > 0
        || settings["padding"].is_object()
        || matches!(settings["resize_backend"].as_str(), Some("pillow" | "torchvision"))
        || settings["interpolation"].as_str() == Some("bicubic")
        || settings["to_float32"].as_bool() == Some(true)
        || settings["turn_size"].as_bool() == Some(false)
        || matches!(settings["rounding"].as_str(), Some("down" | "truncate"))
        || settings["clip_boxes"].as_bool() == Some(true)
        || settings["inclusive_boxes"].as_bool() == Some(true)
    {
        return Err("this example resizes bytes as OpenCV does, and pads with zeros on the right and below".into());
    }

    let sizes = sizes(&settings, &picture);
    let input = Tensor::from_array(([1, 3, sizes.rows, sizes.columns], preprocess(&picture, &settings, &sizes)))?;
    let img_shape = Tensor::from_array(([1usize, 2], vec![sizes.height as i64, sizes.width as i64]))?;
    let outputs = session.run(ort::inputs!["input" => input, "img_shape" => img_shape])?;

    let (shape, dets) = outputs["dets"].try_extract_tensor::<f32>()?; // [1, K, 5]: x1, y1, x2, y2, score
    if shape[2] != 5 {
        return Err("this example does not know rotated boxes".into());
    }
    let (_, labels) = outputs["labels"].try_extract_tensor::<i64>()?; // [1, K], -1 in unused rows
    let (x_scale, y_scale) =
        (sizes.width as f32 / picture.width() as f32, sizes.height as f32 / picture.height() as f32);
    for (det, &label) in dets.chunks_exact(5).zip(labels) {
        if label >= 0 && det[4] >= MIN_SCORE {
            let name = classes[label as usize].as_str().unwrap_or("?");
            let (x1, y1, x2, y2) = (det[0] / x_scale, det[1] / y_scale, det[2] / x_scale, det[3] / y_scale);
            println!("{name} {:.4} {x1:.2} {y1:.2} {x2:.2} {y2:.2}", det[4]);
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    let result = match arguments.as_slice() {
        [_, model, path, library @ ..] => run(model, path, library.first()),
        _ => Err("usage: detect MODEL.onnx PICTURE [LIBMMORT_ORT.so]".into()),
    };
    if let Err(error) = result {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
