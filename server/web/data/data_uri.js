// The bytes of a file in a text.

/** The data URI of a file. */
export function dataUri(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** The base64 in a data URI. */
export const base64Of = (uri) => uri.slice(uri.indexOf(",") + 1);
