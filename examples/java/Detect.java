// java -cp onnxruntime.jar:. Detect MODEL.onnx PICTURE [LIBMMORT_ORT.so]: what a detector finds, a line for each object.
//
// A line is: class, score, x1, y1, x2, y2 in pixels of the picture.  The file is one of `mmort export` or `mmort
// adopt`; a portable one needs no library.
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

    // Whether an entry is true.
    static boolean flag(String json, String key, boolean otherwise) {
        Matcher entry = Pattern.compile("\"" + key + "\": *(true|false)").matcher(json);
        return entry.find() ? entry.group(1).equals("true") : otherwise;
    }

    // The width and height that a picture is resized to.
    static int[] resizedSize(int width, int height, String settings) {
        double[] size = numbers(settings, "size");
        if (size.length != 2) return new int[] {width, height};
        if (!flag(settings, "keep_ratio", true)) return new int[] {(int) size[0], (int) size[1]};
        boolean truncates = settings.contains("\"truncate\""), down = settings.contains("\"down\"");
        if (!flag(settings, "turn_size", true)) {
            double scale = Math.min(size[0] / width, size[1] / height);
            boolean nearest = !truncates && !down;
            return new int[] {Math.max(1, (int) (nearest ? Math.rint(width * scale) : width * scale)),
                    Math.max(1, (int) (nearest ? Math.rint(height * scale) : height * scale))};
        }
        if (down) throw new IllegalArgumentException("this example does not resize by the short side as transformers");
        double scale = Math.min(Math.max(size[0], size[1]) / Math.max(width, height),
                Math.min(size[0], size[1]) / Math.min(width, height));
        double half = truncates ? 0 : 0.5;
        return new int[] {Math.max(1, (int) (width * scale + half)), Math.max(1, (int) (height * scale + half))};
    }

    // A side of a picture that was padded: `axis` is 0 for the width.
    static int paddedSide(int[] size, int axis, String padding) {
        int side = flag(padding, "square", false) ? Math.max(size[0], size[1]) : size[axis];
        double[] target = numbers(padding, "size");
        if (target.length == 2) side = Math.max(side, (int) target[axis]);
        return multiple(side, numbers(padding, "size_divisor", 1)[0]);
    }

    static int multiple(int side, double divisor) {
        return (int) (Math.ceil(side / divisor) * divisor);
    }

    static void detect(OrtEnvironment environment, OrtSession session, BufferedImage picture) throws OrtException {
        Map<String, String> metadata = session.getMetadata().getCustomMetadata();
        String entries = metadata.get("preprocessing"), names = metadata.get("classes");
        if (entries == null || names == null)
            throw new IllegalArgumentException("the file has no metadata of mmort export");
        Matcher object = Pattern.compile("\"padding\": *(\\{[^}]*\\})").matcher(entries);
        String padding = object.find() ? object.group(1) : "{}", settings = object.replaceAll("\"padding\": null");
        if (numbers(settings, "pad_or", 0)[0] != 0 || settings.contains("\"pillow\"")
                || settings.contains("\"torchvision\"") || settings.contains("\"bicubic\"") || settings.contains("\"area\"")
                || flag(settings, "to_float32", false) || flag(settings, "inclusive_boxes", false)
                || flag(settings, "by_ratio", false) || flag(padding, "half_pixels", false)
                || !flag(settings, "enlarges", true))
            throw new IllegalArgumentException(
                    "this example resizes bytes as OpenCV does, bilinear, and knows no padding by bits");
        String[] classes = names.replaceAll("^\\[\"|\"\\]$", "").split("\", \"");

        // The sizes of the picture after resizing, after padding, and of the input, which has zeros beyond.
        int[] size = resizedSize(picture.getWidth(), picture.getHeight(), settings);
        int width = paddedSide(size, 0, padding), height = paddedSide(size, 1, padding);
        double divisor = numbers(settings, "size_divisor", 1)[0];
        int columns = multiple(width, divisor), rows = multiple(height, divisor);
        boolean centred = flag(padding, "centred", false), toRgb = flag(settings, "to_rgb", false);
        int left = centred ? (width - size[0]) / 2 : 0, top = centred ? (height - size[1]) / 2 : 0;
        double scaleX = (double) size[0] / picture.getWidth(), scaleY = (double) size[1] / picture.getHeight();
        double[] mean = numbers(settings, "mean"), std = numbers(settings, "std"), levels = numbers(padding, "value");
        FloatBuffer input = FloatBuffer.allocate(3 * rows * columns);
        for (int channel = 0; channel < 3; channel++)
            for (int y = 0; y < height; y++)
                for (int x = 0; x < width; x++) {
                    int source = toRgb ? 2 - channel : channel; // of blue, green, red
                    boolean inside = x >= left && x < left + size[0] && y >= top && y < top + size[1];
                    if (!inside && levels.length == 0) continue;
                    double pictureX = (x - left + 0.5) / scaleX - 0.5, pictureY = (y - top + 0.5) / scaleY - 0.5;
                    double value = inside ? sample(picture, pictureX, pictureY, 8 * source)
                            : levels[levels.length == 3 ? source : 0];
                    input.put((channel * rows + y) * columns + x, (float) ((value - mean[channel]) / std[channel]));
                }

        boolean inImage = flag(padding, "in_image", false), clips = flag(settings, "clip_boxes", false);
        LongBuffer imageSize = LongBuffer.wrap(new long[] {inImage ? height : size[1], inImage ? width : size[0]});
        boolean hasSize = session.getInputNames().contains("img_shape"); // in portable files it is not listed
        String name = session.getInputNames().stream().filter(key -> !key.equals("img_shape")).findFirst().get();
        try (OnnxTensor image = OnnxTensor.createTensor(environment, input, new long[] {1, 3, rows, columns});
                OnnxTensor shape = OnnxTensor.createTensor(environment, imageSize, new long[] {1, 2});
                OrtSession.Result outputs =
                        session.run(hasSize ? Map.of(name, image, "img_shape", shape) : Map.of(name, image))) {
            float[][] dets = ((float[][][]) outputs.get("dets").orElseThrow().getValue())[0]; // x1, y1, x2, y2, score
            long[] labels = ((long[][]) outputs.get("labels").orElseThrow().getValue())[0]; // -1 in unused rows
            for (int i = 0; i < labels.length; i++) {
                float[] det = dets[i];
                if (det.length != 5) throw new IllegalArgumentException("this example does not know rotated boxes");
                if (labels[i] < 0 || det[4] < MIN_SCORE) continue;
                double[] box = {(det[0] - left) / scaleX, (det[1] - top) / scaleY, (det[2] - left) / scaleX,
                        (det[3] - top) / scaleY};
                for (int side = 0; clips && side < 4; side++) {
                    int limit = side % 2 == 0 ? picture.getWidth() : picture.getHeight();
                    box[side] = Math.max(0, Math.min(box[side], limit));
                }
                System.out.printf(Locale.ROOT, "%s %.4f %.2f %.2f %.2f %.2f%n", classes[(int) labels[i]], det[4],
                        box[0], box[1], box[2], box[3]);
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
