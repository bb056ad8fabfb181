// java -cp onnxruntime.jar:. Detect MODEL.onnx PICTURE [LIBMMORT_ORT.so]: what a detector finds, a line for each object.
//
// A line is: class, score, x1, y1, x2, y2 in pixels of the picture.  The file is one of `mmort export`; a portable one
// needs no library.
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtLoggingLevel;
import ai.onnxruntime.OrtSession;
import java.awt.image.BufferedImage;
import java.io.File;
import java.io.IOException;
import java.nio.FloatBuffer;
import java.nio.LongBuffer;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.imageio.ImageIO;

public class Detect {
    static final float MIN_SCORE = 0.3f;

    // The numbers of an entry in JSON such as "mean": [1.0, 2.0, 3.0]; a program with a JSON library uses that.
    static double[] numbers(String json, String key, double... otherwise) {
        Matcher entry = Pattern.compile("\"" + key + "\": *\\[?([-+.eE0-9, ]+)").matcher(json);
        if (!entry.find()) return otherwise;
        return Pattern.compile(",").splitAsStream(entry.group(1)).map(String::trim).filter(text -> !text.isEmpty())
                .mapToDouble(Double::parseDouble).toArray();
    }

    // Red, green or blue of a picture at any position, interpolated bilinearly between the centres of its pixels.
    static double sample(BufferedImage picture, double x, double y, int shift) {
        int left = (int) Math.floor(x), top = (int) Math.floor(y);
        double value = 0;
        for (int row = top; row <= top + 1; row++)
            for (int column = left; column <= left + 1; column++) {
                int insideX = Math.max(0, Math.min(column, picture.getWidth() - 1));
                int insideY = Math.max(0, Math.min(row, picture.getHeight() - 1));
                int level = picture.getRGB(insideX, insideY) >> shift & 255;
                value += (1 - Math.abs(x - column)) * (1 - Math.abs(y - row)) * level;
            }
        return Math.round(value);
    }

    static void detect(OrtEnvironment environment, OrtSession session, BufferedImage picture) throws OrtException {
        Map<String, String> metadata = session.getMetadata().getCustomMetadata();
        String settings = metadata.get("preprocessing"), names = metadata.get("classes");
        if (settings == null || names == null)
            throw new IllegalArgumentException("the file has no metadata of mmort export");
        if (numbers(settings, "pad_or", 0)[0] != 0 || settings.contains("\"padding\": {")
                || settings.contains("\"pillow\"") || settings.contains("\"torchvision\"")
                || settings.contains("\"bicubic\"") || settings.contains("\"to_float32\": true")
                || settings.contains("\"turn_size\": false") || settings.contains("\"rounding\": \"down\"")
                || settings.contains("\"rounding\": \"truncate\"")
                || settings.contains("\"clip_boxes\": true")
                || settings.contains("\"inclusive_boxes\": true"))
            throw new IllegalArgumentException(
                    "this example resizes bytes as OpenCV does, and pads with zeros on the right and below");
        String[] classes = names.replaceAll("^\\[\"|\"\\]$", "").split("\", \"");

        // The size after resizing, then that with zeros on the right and below.
        int width = picture.getWidth(), height = picture.getHeight();
        double[] size = numbers(settings, "size"), mean = numbers(settings, "mean"), std = numbers(settings, "std");
        if (size.length == 2) {
            double scale = Math.min(Math.max(size[0], size[1]) / Math.max(width, height),
                    Math.min(size[0], size[1]) / Math.min(width, height));
            boolean keep = !settings.contains("\"keep_ratio\": false");
            width = keep ? Math.max(1, (int) (width * scale + 0.5)) : (int) size[0];
            height = keep ? Math.max(1, (int) (height * scale + 0.5)) : (int) size[1];
        }
        double scaleX = (double) width / picture.getWidth(), scaleY = (double) height / picture.getHeight();
        int divisor = (int) numbers(settings, "size_divisor", 1)[0];
        int columns = (width + divisor - 1) / divisor * divisor, rows = (height + divisor - 1) / divisor * divisor;
        boolean toRgb = settings.contains("\"to_rgb\": true");
        FloatBuffer input = FloatBuffer.allocate(3 * rows * columns);
        for (int channel = 0; channel < 3; channel++)
            for (int y = 0; y < height; y++)
                for (int x = 0; x < width; x++) {
                    int shift = toRgb ? 16 - 8 * channel : 8 * channel;
                    double value = sample(picture, (x + 0.5) / scaleX - 0.5, (y + 0.5) / scaleY - 0.5, shift);
                    input.put((channel * rows + y) * columns + x, (float) ((value - mean[channel]) / std[channel]));
                }

        LongBuffer resized = LongBuffer.wrap(new long[] {height, width});
        try (OnnxTensor image = OnnxTensor.createTensor(environment, input, new long[] {1, 3, rows, columns});
                OnnxTensor shape = OnnxTensor.createTensor(environment, resized, new long[] {1, 2});
                // Of portable files img_shape is not listed as an input, and Java passes listed inputs only.
                OrtSession.Result outputs = session.run(session.getInputNames().contains("img_shape")
                        ? Map.of("input", image, "img_shape", shape) : Map.of("input", image))) {
            float[][] dets = ((float[][][]) outputs.get("dets").orElseThrow().getValue())[0]; // x1, y1, x2, y2, score
            long[] labels = ((long[][]) outputs.get("labels").orElseThrow().getValue())[0]; // -1 in unused rows
            for (int i = 0; i < labels.length; i++) {
                float[] det = dets[i];
                if (det.length != 5) throw new IllegalArgumentException("this example does not know rotated boxes");
                if (labels[i] >= 0 && det[4] >= MIN_SCORE)
                    System.out.printf(Locale.ROOT, "%s %.4f %.2f %.2f %.2f %.2f%n", classes[(int) labels[i]], det[4],
                            det[0] / scaleX, det[1] / scaleY, det[2] / scaleX, det[3] / scaleY);
            }
        }
    }

    public static void main(String[] arguments) {
        try (OrtSession.SessionOptions options = new OrtSession.SessionOptions()) {
            if (arguments.length < 2)
                throw new IllegalArgumentException("usage: Detect MODEL.onnx PICTURE [LIBMMORT_ORT.so]");
            BufferedImage picture = ImageIO.read(new File(arguments[1]));
            if (picture == null) throw new IOException(arguments[1] + " is not a picture that Java reads");
            if (arguments.length > 2) options.registerCustomOpLibrary(arguments[2]);
            OrtEnvironment environment = OrtEnvironment.getEnvironment(OrtLoggingLevel.ORT_LOGGING_LEVEL_ERROR);
            try (OrtSession session = environment.createSession(arguments[0], options)) {
                detect(environment, session, picture);
            }
        } catch (IOException | IllegalArgumentException | OrtException error) {
            System.err.println(error.getMessage());
            System.exit(1);
        }
    }
}
