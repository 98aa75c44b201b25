#!/bin/sh
# The whole loop of an agent, with nothing but curl: look, take, read, work, report.
# A process agent: set its command to sh and its argument to this file. Ten lines:
set -eu
api() { curl -sSf -X "$1" "$PAPERCLIP_API_URL/api$2" -H "Authorization: Bearer $PAPERCLIP_API_KEY" \
  -H "Content-Type: application/json" ${3:+-d "$3"}; }
first() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }
issue=$(api GET /agents/me/inbox-lite | first id) || { echo "Nothing to do."; exit 0; }
api POST "/issues/$issue/checkout" "{\"agentId\": \"$PAPERCLIP_AGENT_ID\"}" > /dev/null
title=$(api GET "/issues/$issue/heartbeat-context" | first title)
api GET "/issues/$issue/comments?order=asc" > comments.json
api PUT "/issues/$issue/documents/result" "{\"body\": \"$(date -u) was the time.\"}" > /dev/null
api PATCH "/issues/$issue" '{"status": "done", "comment": "The time is in the document."}' > /dev/null
echo "Done: $title"
