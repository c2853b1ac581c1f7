// Photos are chosen, dropped, pasted or read from a folder. Each is a file with its display name.

const PHOTO = /\.(jpe?g|jfif|png|webp|gif|bmp|tiff?|heic|heif|avif|jxl|jp2|ppm|pgm|tga|ico)$/i;
const isPhoto = (file) => file.type.startsWith("image/") || PHOTO.test(file.name);

// Files chosen one by one are all added; of a folder only images.
export function chosen(input) {
  const found = [...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name }));
  const kept = found.filter(({ file, name }) => !name.includes("/") || isVisible(name) && isPhoto(file));
  input.value = "";
  return { photos: kept, leftOut: found.length - kept.length };
}

const isVisible = (name) => !name.split("/").some((part) => part.startsWith("."));

export function pasted(clipboard) {
  const files = [...(clipboard?.files || [])].filter(isPhoto);
  return { photos: files.map((file) => ({ file, name: file.name || "pasted.png" })), leftOut: 0 };
}

export async function dropped(transfer) {
  // read the entries before the first await, because the browser discards them then
  const entries = [...transfer.items].filter((item) => item.kind === "file").map((item) => item.webkitGetAsEntry?.());
  if (!entries.length || entries.includes(null) || entries.includes(undefined))
    return { photos: [...transfer.files].map((file) => ({ file, name: file.name })), leftOut: 0 };
  const photos = [];
  let leftOut = 0;
  for (const entry of entries) {
    if (entry.isFile) photos.push({ file: await fileOf(entry), name: entry.name });
    else leftOut += await walk(entry, entry.name, photos);
  }
  return { photos, leftOut };
}

async function walk(folder, path, photos) {
  const reader = folder.createReader();
  let leftOut = 0;
  for (;;) {  // a reader returns at most 100 entries per call
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return leftOut;
    for (const entry of some) {
      if (entry.name.startsWith(".")) leftOut += entry.isFile ? 1 : 0;
      else if (entry.isDirectory) leftOut += await walk(entry, `${path}/${entry.name}`, photos);
      else {
        const file = await fileOf(entry);
        if (isPhoto(file)) photos.push({ file, name: `${path}/${entry.name}` });
        else leftOut++;
      }
    }
  }
}

const fileOf = (entry) => new Promise((done, fail) => entry.file(done, fail));
