//! detect MODEL.onnx PICTURE [LIBMMORT_ORT.so]: what a detector finds, a line for each object.
//!
//! The file is one of `mmort export` or `mmort adopt`; a portable one needs no library.
//! A line is: class, score, x1, y1, x2, y2 in pixels. ORT_DYLIB_PATH is ONNX Runtime.
use std::{env, error::Error, process::ExitCode};

use image::RgbImage;
use ort::{session::Session, value::Tensor};
use serde_json::Value;

const MIN_SCORE: f32 = 0.3;

/// Where a picture is in the network's input, and how large that is.
struct Sizes {
    width: usize,
    height: usize,
    left: usize,
    top: usize,
    padded_width: usize,
    padded_height: usize,
    columns: usize,
    rows: usize,
}

/// Whether an entry is true.
fn flag(settings: &Value, key: &str, otherwise: bool) -> bool {
    settings[key].as_bool().unwrap_or(otherwise)
}

/// The width and height that a picture is resized to.
fn resized_size(settings: &Value, width: usize, height: usize) -> Result<(usize, usize), String> {
    let (Some(w), Some(h)) = (settings["size"][0].as_f64(), settings["size"][1].as_f64()) else {
        return Ok((width, height));
    };
    if !flag(settings, "keep_ratio", true) {
        return Ok((w as usize, h as usize));
    }
    let (x, y) = (width as f64, height as f64);
    let rounding = settings["rounding"].as_str().unwrap_or("nearest");
    if !flag(settings, "turn_size", true) {
        let scale = (w / x).min(h / y);
        let rounded = |side: f64| if rounding == "nearest" { side.round_ties_even() } else { side.floor() };
        return Ok(((rounded(x * scale) as usize).max(1), (rounded(y * scale) as usize).max(1)));
    }
    if rounding == "down" {
        return Err("this example does not resize by the short side as transformers".into());
    }
    let scale = (w.max(h) / x.max(y)).min(w.min(h) / x.min(y));
    let half = if rounding == "truncate" { 0.0 } else { 0.5 };
    Ok((((x * scale + half) as usize).max(1), ((y * scale + half) as usize).max(1)))
}

/// The sizes that the metadata's `preprocessing` gives a picture.
fn sizes(settings: &Value, picture: &RgbImage) -> Result<Sizes, String> {
    let (width, height) = resized_size(settings, picture.width() as usize, picture.height() as usize)?;
    let multiple = |side: usize, divisor: &Value| side.next_multiple_of(divisor.as_u64().unwrap_or(1) as usize);
    let padding = &settings["padding"];
    let padded = |side: usize, axis: usize| {
        let side = if flag(padding, "square", false) { width.max(height) } else { side };
        multiple(side.max(padding["size"][axis].as_u64().unwrap_or(0) as usize), &padding["size_divisor"])
    };
    let (padded_width, padded_height) = (padded(width, 0), padded(height, 1));
    let before = |space: usize| if flag(padding, "centred", false) { space / 2 } else { 0 };
    Ok(Sizes {
        width,
        height,
        left: before(padded_width - width),
        top: before(padded_height - height),
        padded_width,
        padded_height,
        columns: multiple(padded_width, &settings["size_divisor"]),
        rows: multiple(padded_height, &settings["size_divisor"]),
    })
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

/// The network's input: resized, padded, and normalized.
fn preprocess(picture: &RgbImage, settings: &Value, sizes: &Sizes) -> Vec<f32> {
    let mut input = vec![0.0; 3 * sizes.rows * sizes.columns];
    let x_scale = sizes.width as f64 / f64::from(picture.width());
    let y_scale = sizes.height as f64 / f64::from(picture.height());
    let padding = &settings["padding"]["value"]; // of all channels, or of blue, green and red
    for channel in 0..3 {
        let source = if flag(settings, "to_rgb", false) { channel } else { 2 - channel };
        let mean = settings["mean"][channel].as_f64().unwrap_or(0.0);
        let std = settings["std"][channel].as_f64().unwrap_or(1.0);
        let mut put = |x, y, value: f64| {
            input[(channel * sizes.rows + y) * sizes.columns + x] = ((value - mean) / std) as f32;
        };
        if let Some(level) = padding.as_f64().or(padding[2 - source].as_f64()) {
            for y in 0..sizes.padded_height {
                for x in 0..sizes.padded_width {
                    put(x, y, level);
                }
            }
        }
        for y in 0..sizes.height {
            for x in 0..sizes.width {
                let value = sample(picture, (x as f64 + 0.5) / x_scale - 0.5, (y as f64 + 0.5) / y_scale - 0.5, source);
                put(x + sizes.left, y + sizes.top, value);
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
        || matches!(settings["resize_backend"].as_str(), Some("pillow" | "torchvision"))
        || matches!(settings["interpolation"].as_str(), Some("bicubic" | "area"))
        || flag(&settings, "to_float32", false)
        || flag(&settings, "inclusive_boxes", false)
        || flag(&settings, "by_ratio", false)
        || flag(&settings["padding"], "half_pixels", false)
        || !flag(&settings, "enlarges", true)
    {
        return Err("this example resizes bytes as OpenCV does, bilinear, and knows no padding by bits".into());
    }

    let sizes = sizes(&settings, &picture)?;
    let input = Tensor::from_array(([1, 3, sizes.rows, sizes.columns], preprocess(&picture, &settings, &sizes)))?;
    let (image_height, image_width) = match flag(&settings["padding"], "in_image", false) {
        true => (sizes.padded_height, sizes.padded_width),
        false => (sizes.height, sizes.width),
    };
    let names: Vec<String> = session.inputs.iter().map(|input| input.name.clone()).collect();
    let mut inputs = ort::inputs![names[0].as_str() => input];
    if names.iter().any(|name| name == "img_shape") {
        let img_shape = Tensor::from_array(([1usize, 2], vec![image_height as i64, image_width as i64]))?;
        inputs.push(("img_shape".into(), img_shape.into()));
    }
    let outputs = session.run(inputs)?;

    let (shape, dets) = outputs["dets"].try_extract_tensor::<f32>()?; // [1, K, 5]: x1, y1, x2, y2, score
    if shape[2] != 5 {
        return Err("this example does not know rotated boxes".into());
    }
    let (_, labels) = outputs["labels"].try_extract_tensor::<i64>()?; // [1, K], -1 in unused rows
    let (x_scale, y_scale) =
        (sizes.width as f32 / picture.width() as f32, sizes.height as f32 / picture.height() as f32);
    let clips = flag(&settings, "clip_boxes", false);
    let in_picture = |position: f32, start: usize, scale: f32, limit: u32| {
        let position = (position - start as f32) / scale;
        if clips {
            position.clamp(0.0, limit as f32)
        } else {
            position
        }
    };
    for (det, &label) in dets.chunks_exact(5).zip(labels) {
        if label >= 0 && det[4] >= MIN_SCORE {
            let name = classes[label as usize].as_str().unwrap_or("?");
            let x = |position| in_picture(position, sizes.left, x_scale, picture.width());
            let y = |position| in_picture(position, sizes.top, y_scale, picture.height());
            println!("{name} {:.4} {:.2} {:.2} {:.2} {:.2}", det[4], x(det[0]), y(det[1]), x(det[2]), y(det[3]));
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
