"""The four Lua scripts that Redis runs: compare, then set. What to set is decided in Python.

Each touches only keys it is told, of one hash tag; a key that holds another type than ours is
garbage and goes. Each counts its own repetition as success, as clients send again after a timeout.
"""

# KEYS: value, and perhaps another. ARGV: expected, 1 when something was there, new value, its life
# in seconds or 0, and what the other one must be
SWAP = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'string' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
if KEYS[2] and redis.call('GET', KEYS[2]) ~= ARGV[5] then return 0 end
local now = redis.call('GET', KEYS[1])
local expected = (now and '1' or '0') == ARGV[2] and (not now or now == ARGV[1])
if not expected and now ~= ARGV[3] then return 0 end
if ARGV[4] == '0' then redis.call('SET', KEYS[1], ARGV[3])
else redis.call('SET', KEYS[1], ARGV[3], 'EX', ARGV[4]) end
return 1
"""

# KEYS: snapshots, purged mark. ARGV: field, expected header, 1 when something was there, new value,
# 1 to drop all pieces of the field, number of pieces to drop, their names, then names and values of
# pieces to put. The field is `name:version`, a piece's own adds `/` and its name; to drop all drops
# what was kept and those of earlier versions too. Said again, it drops nothing
SNAPSHOT = """
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
local now, prefix, count = redis.call('HGET', KEYS[1], ARGV[1]), ARGV[1] .. '/', tonumber(ARGV[6])
local name, version = string.match(ARGV[1], '^(.*:)(%d+)$')
if now ~= ARGV[4] then
  if (now and '1' or '0') ~= ARGV[3] then return 0 end
  if now and string.sub(now, 1, #ARGV[2]) ~= ARGV[2] then return 0 end
  if ARGV[5] == '1' then
    for _, each in ipairs(redis.call('HKEYS', KEYS[1])) do
      local found = string.sub(each, 1, #name) == name and string.sub(each, #name + 1)
      local old = found and (string.match(found, '^(%d+)$') or string.match(found, '^(%d+)[/@]'))
      if old and tonumber(old) <= tonumber(version) then redis.call('HDEL', KEYS[1], each) end
    end
  end
  for i = 7, 6 + count do redis.call('HDEL', KEYS[1], prefix .. ARGV[i]) end
end
for i = 7 + count, #ARGV, 2 do redis.call('HSET', KEYS[1], prefix .. ARGV[i], ARGV[i + 1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[4])
return 1
"""

# KEYS: snapshots, purged mark. ARGV: field, expected header, seq, names of pieces. What is kept
# lies behind `@`: heads by their seq, pieces behind a `/`, and, nameless, the list of the seqs
KEEP = """
if redis.call('EXISTS', KEYS[2]) == 1 or redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return 0 end
local now, kept = redis.call('HGET', KEYS[1], ARGV[1]), ARGV[1] .. '@'
if not now or string.sub(now, 1, #ARGV[2]) ~= ARGV[2] then return 0 end
for i = 4, #ARGV do
  local loose = ARGV[1] .. '/' .. ARGV[i]
  local piece = redis.call('HGET', KEYS[1], loose)
  if piece then redis.call('HSET', KEYS[1], kept .. '/' .. ARGV[i], piece) end
  redis.call('HDEL', KEYS[1], loose)
end
if redis.call('HSET', KEYS[1], kept .. ARGV[3], now) == 1 then
  local seqs = redis.call('HGET', KEYS[1], kept)
  redis.call('HSET', KEYS[1], kept, (seqs and seqs .. ' ' or '') .. ARGV[3])
end
return 1
"""

# KEYS: row, then indexes. ARGV: expected SHA-1 or '', new value or '' to remove it, then for each
# index its member and its score, '' to leave it
ROW = """
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'string' and kind ~= 'none' then redis.call('DEL', KEYS[1]) end
local now = redis.call('GET', KEYS[1])
if now == ARGV[2] and now ~= '' or not now and ARGV[2] == '' then return 1 end
if (now and redis.sha1hex(now) or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2]) end
for i = 2, #KEYS do
  local member, score = ARGV[2 * i - 1], ARGV[2 * i]
  local held = redis.call('TYPE', KEYS[i]).ok
  if held ~= 'zset' and held ~= 'none' then redis.call('DEL', KEYS[i]) end
  if score == '' then redis.call('ZREM', KEYS[i], member)
  else redis.call('ZADD', KEYS[i], score, member) end
end
return 1
"""
