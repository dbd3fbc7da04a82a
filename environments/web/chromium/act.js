// Prepares an action on element `id` of the last tree. Returns the point to click, or what is
// wrong: {gone: true}, {invalid: id of the field that a form still needs}, {option: false}.
([id, what, text]) => {
  const elements = window.__elements ?? [];
  const target = elements[id - 1];
  if (!target?.isConnected) return { gone: true };
  const element = target.nodeType === Node.TEXT_NODE ? target.parentElement : target;
  const missing = (form) => {
    if (!form || form.noValidate || form.checkValidity()) return 0;
    const field = [...form.elements].find((e) => e.willValidate && !e.validity.valid);
    field.focus();
    return elements.indexOf(field) + 1;
  };
  element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
  if (what === "fill") {
    element.focus();
    if (element.select) element.select();
    else getSelection().selectAllChildren(element);
    return { empty: !(element.value ?? element.innerText) };
  }
  if (what === "select") {
    const wanted = text.trim().toLowerCase();
    const option = [...element.options].find((o) => o.text.trim().toLowerCase() === wanted);
    if (!option) return { option: false };
    element.focus();
    option.selected = true;
    element.dispatchEvent(new Event("input", { bubbles: true }));
    element.dispatchEvent(new Event("change", { bubbles: true }));
    return {};
  }
  const submits = element.type === "submit" || (what === "enter" && element.tagName === "INPUT");
  const invalid = submits && !element.formNoValidate ? missing(element.form) : 0;
  if (invalid) return { invalid };
  const range = document.createRange();
  range.selectNode(target);
  const source = target.nodeType === Node.TEXT_NODE ? range : element;
  const box = source.getClientRects()[0] ?? element.getBoundingClientRect();
  const at = (right, down) => ({ x: box.x + box.width * right, y: box.y + box.height * down });
  const hits = ({ x, y }) => element.contains(document.elementFromPoint(x, y));
  const shares = [0.5, 0.1, 0.9, 0.3, 0.7]; // the middle may lie under another element
  const points = shares.flatMap((down) => shares.map((right) => at(right, down)));
  return points.find(hits) ?? points[0];
}
