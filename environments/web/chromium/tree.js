// The accessibility tree of the live page, by the rules of environments/web/axtree.py, so that a
// page without scripts gives the same lines. On pages with scripts there is more: elements that
// listen to the mouse are buttons, and with `shapes` the parts of drawings are lines too. Elements
// that match the selector `skip` are left out.
// Returns the page as JSON; element i is kept in window.__elements[i - 1] to act on it.
([shapes, skip]) => {
  const HIDDEN = new Set(["head", "script", "style", "template", "noscript", "option"]);
  const INLINE = new Set("span b strong em i small code abbr time".split(" "));
  const HEADINGS = new Set(["h1", "h2", "h3", "h4", "h5", "h6"]);
  const CONTROLS = "a[href],button,input,select,textarea";
  const SHAPES = new Set(["rect", "circle", "ellipse", "polygon", "path", "line", "text"]);
  const INPUTS = { checkbox: "checkbox", radio: "radio", search: "searchbox", submit: "button" };
  const MORE_INPUTS = { button: "button", reset: "button", image: "button", range: "slider" };
  const ROLES = { button: 1, link: 1, tab: 1, menuitem: 1, option: 1, checkbox: 1, switch: 1 };
  const collapse = (text) => text.split(/\s+/u).filter(Boolean).join(" ");
  const scripted = document.scripts.length > 0;
  const labels = new Map();
  for (const label of document.querySelectorAll("label[for]")) {
    labels.set(label.getAttribute("for"), collapse(label.textContent));
  }
  const nodes = [], elements = [];
  let buffer = "", first = null; // text that is no line yet, and where it begins

  const add = (role, name, element, more = {}) => {
    const focused = element === document.activeElement && element !== document.body;
    nodes.push({ role, name, focused, ...more });
    elements.push(element);
  };
  const flush = () => {
    const text = collapse(buffer);
    if (text) add("StaticText", text, first);
    buffer = "";
    first = null;
  };
  const visible = (element) =>
    !element.hasAttribute("hidden") &&
    !(skip && element.matches(skip)) &&
    (!scripted || element.checkVisibility({ visibilityProperty: true }));
  const listens = (element) =>
    scripted &&
    element !== document.body &&
    (element.onclick || element.onmousedown || window.__listens?.(element) ||
      ROLES[element.getAttribute("role")] || element.isContentEditable ||
      (getComputedStyle(element).cursor === "pointer" &&
        getComputedStyle(element.parentElement).cursor !== "pointer"));
  const holdsControls = (element) =>
    element.querySelector(CONTROLS) || [...element.querySelectorAll("*")].some(listens);

  const control = (element, tag) => {
    const kind = element.getAttribute("type") || (tag === "button" ? "submit" : "text");
    if (kind === "hidden") return;
    let name = element.getAttribute("aria-label") || labels.get(element.id);
    name = name || collapse(element.closest("label")?.textContent ?? "");
    const field = {
      name: element.name || "", value: element.value, checked: Boolean(element.checked),
      required: element.required, multiline: tag === "textarea", options: [],
    };
    let role;
    if (tag === "select") {
      role = "combobox";
      field.options = [...element.options].map((o) => [o.value, collapse(o.text)]);
    } else if (tag === "textarea") role = "textbox";
    else if (tag === "button") {
      role = "button";
      name = name || collapse(element.textContent);
    } else role = INPUTS[kind] || MORE_INPUTS[kind] || "textbox";
    const own = name || element.placeholder || (role === "button" ? element.value : "");
    add(role, own || (scripted && element.title) || "", element, { field });
  };

  const drawn = (element) => {
    const tag = element.tagName.toLowerCase();
    const box = element.getBoundingClientRect();
    const at = `at ${Math.round(box.x)},${Math.round(box.y)}`;
    const size = `size ${Math.round(box.width)}x${Math.round(box.height)}`;
    const said = tag === "text" ? `'${collapse(element.textContent)}' ` : "";
    const sides = tag === "polygon" ? `${element.points.numberOfItems} corners ` : "";
    const style = getComputedStyle(element);
    const fill = style.fill === "none" ? style.stroke : style.fill;
    add("img", `${tag} ${said}${sides}${fill} ${at} ${size}`, element);
  };

  const marked = (element) => {
    const role = element.getAttribute("role");
    const editable = element.isContentEditable;
    let name = element.getAttribute("aria-label") || collapse(element.textContent) || element.title;
    if (!name) {
      const colour = getComputedStyle(element).backgroundColor;
      const shown = colour === "rgba(0, 0, 0, 0)" ? "" : colour;
      name = collapse(`${element.id || element.classList} ${shown}`);
    }
    const field = editable && {
      name: "", value: element.innerText, checked: false, required: false, multiline: true,
      options: [],
    };
    if (editable) add("textbox", element.title || element.id, element, { field });
    else add(ROLES[role] ? role : element.tagName === "A" ? "link" : "button", name, element);
  };

  const lineOf = (element, tag) => {
    if (tag === "a" && element.hasAttribute("href")) {
      add("link", element.getAttribute("aria-label") || collapse(element.textContent), element);
    } else if (HEADINGS.has(tag) && !(scripted && holdsControls(element))) {
      add("heading", collapse(element.textContent), element);
    } else if (tag === "img") add("img", element.getAttribute("alt") || "", element);
    else if (["input", "button", "select", "textarea"].includes(tag)) control(element, tag);
    else if (tag === "tr" && !(scripted ? holdsControls(element) : element.querySelector(CONTROLS))) {
      const cells = [...element.querySelectorAll("td,th")].map((c) => collapse(c.textContent));
      add("row", cells.join(" "), element, { cells });
    } else if (tag === "svg" || SHAPES.has(tag)) {
      if (shapes && SHAPES.has(tag)) drawn(element);
      for (const child of element.children) if (visible(child)) lineOf(child, child.tagName);
    } else if (listens(element) && !holdsControls(element)) marked(element);
    else walk(element);
  };

  const walk = (parent) => {
    for (const child of parent.childNodes) {
      if (child.nodeType === Node.TEXT_NODE) {
        if (!first && child.data.trim()) first = child;
        buffer += child.data;
      }
      if (child.nodeType !== Node.ELEMENT_NODE) continue;
      const tag = child.tagName.toLowerCase();
      if (HIDDEN.has(tag) || !visible(child)) continue;
      if (tag === "label" && !(scripted && !child.control)) { // one without a control is a text
        if (scripted && child.contains(child.control)) {
          lineOf(child.control, child.control.tagName.toLowerCase());
        }
        continue;
      }
      if (INLINE.has(tag) && !(listens(child) && !holdsControls(child))) {
        walk(child);
        continue;
      }
      flush();
      lineOf(child, tag);
      flush();
    }
  };

  add("RootWebArea", collapse(document.title), document.documentElement);
  if (document.body) walk(document.body);
  flush();
  Object.defineProperty(window, "__elements", { value: elements, configurable: true });
  return {
    nodes, scripted, url: location.href, title: collapse(document.title),
    back: window.navigation?.canGoBack ?? false, forward: window.navigation?.canGoForward ?? false,
  };
}
