"""Fields of every route that takes a conversation: the template and the reasoning."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hearthd.server.api.fields import Fields, JsonObject, limit_members
from hearthd.server.api.generation_fields import GenerationFields
from hearthd.text.conversation import Conversation
from hearthd.text.errors import InvalidRequest

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORT = (
    "Passed to the chat template as `reasoning_effort`. none also sets `enable_thinking` to false."
)


class TemplateFields(Fields):
    """Fields of every route that renders a conversation."""

    chat_template_kwargs: Annotated[JsonObject, BeforeValidator(limit_members)] = Field(
        default_factory=dict,
        description='Variables for the chat template, such as {"enable_thinking": false}.',
    )
    add_generation_prompt: bool | None = Field(
        None,
        description="Whether the prompt ends where a new message of the model begins. By default "
        "unless the last message is continued.",
    )
    continue_final_message: bool | None = Field(
        None,
        description="Whether the answer continues the last message. By default if that message is "
        "from the assistant and has no tool calls.",
    )

    def ending(self, conversation: Conversation) -> dict[str, bool]:
        """How the prompt ends: options of ChatTemplate.prompt; raises InvalidRequest."""
        continued = self._continues(possible=conversation.can_be_continued)
        begins = not continued and self.add_generation_prompt is not False
        return {"continue_final": continued, "add_generation_prompt": begins}

    def _continues(self, *, possible: bool) -> bool:
        """Whether the answer continues the last message; raises InvalidRequest."""
        if self.continue_final_message and not possible:
            raise InvalidRequest(
                field="continue_final_message",
                got=True,
                expected="false: the last message is not a text from the assistant",
            )
        if self.continue_final_message and self.add_generation_prompt:
            raise InvalidRequest(
                field="add_generation_prompt",
                got=True,
                expected="false with continue_final_message",
            )
        if self.continue_final_message is None:
            return possible and not self.add_generation_prompt
        return self.continue_final_message


class TurnFields(TemplateFields, GenerationFields):
    """Fields of every route that takes a conversation."""

    reasoning_format: Literal["auto", "deepseek", "none"] = Field(
        "auto",
        description="auto, deepseek: the reasoning is separated from the text. none: it stays in "
        "the text, with its tags.",
    )
    reasoning_budget_tokens: int = Field(
        -1,
        ge=-1,
        description="Number of tokens after which the reasoning is ended. -1 sets no limit. 0 also "
        "sets `enable_thinking` to false.",
    )
    thinking_budget_tokens: int | None = Field(
        None, ge=-1, description="Another name of reasoning_budget_tokens."
    )

    @property
    def effort(self) -> Effort | None:
        """The effort of the reasoning, if the request sets one."""
        return None

    @property
    def reasoning_budget(self) -> int | None:
        """The number of tokens of the reasoning; None sets no limit."""
        budget = self.thinking_budget_tokens
        budget = self.reasoning_budget_tokens if budget is None else budget
        return None if budget < 0 else budget

    def template_variables(self) -> dict[str, Any]:
        """The variables of the chat template, those for the reasoning included."""
        variables: dict[str, Any] = {}
        if self.effort is not None:
            variables["reasoning_effort"] = self.effort
        if self.effort == "none" or self.reasoning_budget == 0:
            variables["enable_thinking"] = False
        return variables | self.chat_template_kwargs
