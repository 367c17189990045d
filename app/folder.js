// A folder of pictures, one sub-folder per class, handed to an upload button as a zip that is packed here: a browser
// sends files without the folders they are in. Large pictures are made smaller first, since the model looks at far smaller
// ones and a phone's would fill the zip. What is not a picture stays where it is. Nothing is read before it is known that
// all may be taken, and a line tells how far it is.
({ words, most, bytes, side }) => {
  const PICTURE = /\.(avif|bmp|gif|heic|heif|jfif|jpe|jpe?g|mpo|png|svg|tiff?|webp)$/i;
  const SHRINKS = /^image\/(jpeg|png|webp)$/;
  const SMALL = 256 << 10; // bytes of a picture that is sent as it is
  const QUALITY = 0.92;
  const filled = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => values[name]);

  const TABLE = Uint32Array.from({ length: 256 }, (_, value) => {
    for (let bit = 0; bit < 8; bit++) value = (value >>> 1) ^ (0xedb88320 & -(value & 1));
    return value;
  });
  const crc32 = (data) => {
    let rest = ~0;
    for (const byte of data) rest = (rest >>> 8) ^ TABLE[(rest ^ byte) & 255];
    return ~rest >>> 0;
  };
  // Little-endian fields, each [bytes, value].
  const fields = (...parts) =>
    new Uint8Array(parts.flatMap(([size, value]) => Array.from({ length: size }, (_, i) => (value >>> (8 * i)) & 255)));
  const described = (name, data) => [
    [2, 20], [2, 0x800], [2, 0], [2, 0], [2, 33], [4, crc32(data)], [4, data.length], [4, data.length], [2, name.length], [2, 0],
  ];

  // The picture upright, its shorter side no larger than `side`; as it is where it is small, or the browser cannot read it.
  const shrunk = async (file) => {
    if (file.size <= SMALL || !SHRINKS.test(file.type)) return file;
    try {
      const picture = await createImageBitmap(file, { imageOrientation: "from-image" });
      const scale = side / Math.min(picture.width, picture.height);
      if (scale >= 1) return file;
      const canvas = document.createElement("canvas");
      canvas.width = Math.round(picture.width * scale);
      canvas.height = Math.round(picture.height * scale);
      const pen = canvas.getContext("2d");
      pen.imageSmoothingQuality = "high";
      pen.drawImage(picture, 0, 0, canvas.width, canvas.height);
      picture.close();
      const made = await new Promise((done) => canvas.toBlob(done, file.type, QUALITY));
      return made && made.size < file.size ? made : file;
    } catch {
      return file;
    }
  };
  // The zip, or null where it would be too large. `tell` hears how many are packed.
  const zipped = async (files, tell) => {
    const body = [];
    const index = [];
    let at = 0;
    for (const [place, file] of files.entries()) {
      tell(place);
      const name = new TextEncoder().encode(file.webkitRelativePath);
      const data = new Uint8Array(await (await shrunk(file)).arrayBuffer());
      const about = described(name, data);
      const head = fields([4, 0x04034b50], ...about);
      index.push(fields([4, 0x02014b50], [2, 20], ...about, [2, 0], [2, 0], [2, 0], [4, 0], [4, at]), name);
      body.push(head, name, data);
      at += head.length + name.length + data.length;
      if (at > bytes.file) return null;
    }
    const size = index.reduce((sum, part) => sum + part.length, 0);
    const count = files.length;
    const end = fields([4, 0x06054b50], [2, 0], [2, 0], [2, count], [2, count], [4, size], [4, at], [2, 0]);
    const zip = new Blob([...body, ...index, end], { type: "application/zip" });
    return zip.size > bytes.file ? null : zip;
  };

  // What there is against a folder before any of it is read, in sentences.
  const faults = (title, files, room) => {
    if (files.length === 0) return [filled(words.no_pictures, { name: title })];
    if (files.length > room) return [filled(words.many_pictures, { name: title, count: files.length, most: room })];
    const large = files.filter((file) => file.size > bytes.picture);
    return large.map((file) => filled(words.too_large, { name: file.name, most: bytes.picture >> 20 }));
  };
  const status_line = (target) => {
    const line = document.createElement("p");
    line.className = "at-note at-packing";
    line.setAttribute("role", "status");
    (target.closest(".at-buttons") ?? target).after(line);
    return line;
  };
  const pack = async (target, chosen, room) => {
    const title = chosen[0].webkitRelativePath.split("/")[0];
    const files = chosen.filter((file) => !file.name.startsWith(".") && PICTURE.test(file.name));
    const found = faults(title, files, room);
    window.atlasTell(target, found);
    if (found.length > 0) return;
    const line = status_line(target);
    try {
      const zip = await zipped(files, (done) => {
        line.textContent = filled(words.packing, { name: title, done, count: files.length });
      });
      if (!zip) return window.atlasTell(target, [filled(words.large_folder, { name: title, most: bytes.file >> 20 })]);
      const box = new DataTransfer();
      box.items.add(new File([zip], `${title}.zip`, { type: "application/zip" }));
      target.files = box.files;
      target.dispatchEvent(new Event("change", { bubbles: true }));
    } catch {
      window.atlasTell(target, [filled(words.unread_folder, { name: title })]);
    } finally {
      line.remove();
    }
  };
  const packing = new Set();
  window.atlasFolder = (name) => {
    if (packing.has(name)) return;
    const picker = document.createElement("input");
    picker.type = "file";
    picker.webkitdirectory = true;
    picker.addEventListener("change", async () => {
      if (picker.files.length === 0 || packing.has(name)) return;
      packing.add(name);
      const target = document.getElementById(`${name}-zip`).parentElement.querySelector("input[type=file]");
      await pack(target, [...picker.files], most[name] ?? most.others);
      packing.delete(name);
    });
    picker.click();
  };
}
